package server

import (
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// event returns the event for followers of an effect, nil if there is none.
func event(ef *sequencer.Effect) *logpb.Event {
	e := &logpb.Event{Index: ef.Index}
	if !ef.OK {
		return nil
	}
	switch ef.Kind {
	case sequencer.KindCut:
		if len(ef.Runs) == 0 {
			return nil
		}
		cut := &logpb.Cut{Runs: make([]*logpb.Run, len(ef.Runs))}
		for i, r := range ef.Runs {
			cut.Runs[i] = &logpb.Run{Shard: uint32(r.Shard), From: r.From, To: r.To, First: uint64(r.First)}
		}
		e.What = &logpb.Event_Cut{Cut: cut}
	case sequencer.KindChange:
		e.What = &logpb.Event_Change{Change: &logpb.Pair{Key: ef.Key, Value: ef.Value}}
	case sequencer.KindOpen:
		e.What = &logpb.Event_Opened{Opened: shard(&ef.Info)}
	case sequencer.KindSeal:
		e.What = &logpb.Event_Sealed{Sealed: shard(&ef.Info)}
	case sequencer.KindPlace:
		e.What = &logpb.Event_Placed{Placed: shard(&ef.Info)}
	case sequencer.KindTrim:
		if ef.Before == 0 {
			return nil // at or below the floor
		}
		e.What = &logpb.Event_Trim{Trim: &logpb.TrimPoint{Tag: string(ef.Tag), Before: uint64(ef.Before)}}
	case sequencer.KindNode:
		e.What = &logpb.Event_Node{Node: storageNode(ef.Node)}
	case sequencer.KindRescue:
		e.What = &logpb.Event_Rescued{Rescued: shard(&ef.Info)}
	case sequencer.KindForget:
		forgot := &logpb.Forgot{Floor: uint64(ef.Floor)}
		for _, id := range ef.Forgotten {
			forgot.Shards = append(forgot.Shards, uint32(id))
		}
		e.What = &logpb.Event_Forgot{Forgot: forgot}
	case sequencer.KindLevel:
		e.What = &logpb.Event_Level{Level: ef.Level}
	case sequencer.KindSequencer:
		e.What = &logpb.Event_Sequencer{Sequencer: member(ef.Sequencer)}
	default:
		return nil
	}
	return e
}

func shard(sh *sequencer.Shard) *logpb.Shard {
	m := &logpb.Shard{
		Id: uint32(sh.ID), Incarnation: sh.Incarnation, Opened: uint64(sh.Opened), Length: sh.Length,
		Sealed: sh.Sealed, SealedAt: uint64(sh.SealedAt), Lost: sh.Lost,
	}
	for _, a := range sh.Addrs {
		m.Addrs = append(m.Addrs, string(a))
	}
	return m
}

func storageNode(n sequencer.Node) *logpb.Node {
	return &logpb.Node{Addr: n.Addr, State: logpb.Node_State(n.State)}
}

func member(q sequencer.Sequencer) *logpb.Sequencer {
	return &logpb.Sequencer{Id: q.ID, Addr: q.Addr, StoreId: q.StoreID, State: logpb.Sequencer_State(q.State)}
}

// snapshot returns a state as a snapshot for followers.
func snapshot(state *sequencer.State) *logpb.Snapshot {
	snap := &logpb.Snapshot{
		Index: state.Applied(), Tail: uint64(state.Tail()), Generation: state.Generation(),
		Floor: uint64(state.Floor()), Level: state.Level(), Opened: state.Opened(),
	}
	shards := state.Shards()
	for i := range shards {
		snap.Shards = append(snap.Shards, shard(&shards[i]))
	}
	state.Metadata(func(k string, v []byte) {
		snap.Metadata = append(snap.Metadata, &logpb.Pair{Key: k, Value: v})
	})
	state.TrimPoints(func(t sharedlog.Tag, before sharedlog.LSN) {
		snap.Trims = append(snap.Trims, &logpb.TrimPoint{Tag: string(t), Before: uint64(before)})
	})
	state.Nodes(func(n sequencer.Node) { snap.Nodes = append(snap.Nodes, storageNode(n)) })
	for _, q := range state.Sequencers() {
		snap.Sequencers = append(snap.Sequencers, member(q))
	}
	return snap
}

// entry returns the entry for a proposal.
func entry(req *logpb.ProposeRequest) (sequencer.Entry, error) {
	switch w := req.GetWhat().(type) {
	case *logpb.ProposeRequest_Change:
		return sequencer.Entry{Kind: sequencer.KindChange, Key: w.Change.GetKey(), Old: w.Change.GetOld(), New: w.Change.GetNew()}, nil
	case *logpb.ProposeRequest_Trim:
		return sequencer.Entry{Kind: sequencer.KindTrim, Tag: sharedlog.Tag(w.Trim.GetTag()), Before: sharedlog.LSN(w.Trim.GetBefore())}, nil
	case *logpb.ProposeRequest_Node:
		if w.Node.GetAddr() == "" || w.Node.GetState() < 0 || w.Node.GetState() > logpb.Node_REMOVED {
			return sequencer.Entry{}, sharedlog.Errorf(sharedlog.KindInvalid, "node %q, state %d", w.Node.GetAddr(), w.Node.GetState())
		}
		return sequencer.Entry{Kind: sequencer.KindNode, Node: sequencer.Node{Addr: w.Node.GetAddr(), State: sequencer.NodeState(w.Node.GetState())}}, nil
	case *logpb.ProposeRequest_Rescue:
		return sequencer.Entry{Kind: sequencer.KindRescue, Shard: sequencer.ShardID(w.Rescue.GetShard()), Length: w.Rescue.GetLength()}, nil
	}
	return sequencer.Entry{}, sharedlog.Errorf(sharedlog.KindInvalid, "a proposal of a kind that this sequencer does not know")
}
