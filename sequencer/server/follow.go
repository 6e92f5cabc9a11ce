package server

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sequencer/replica"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

const (
	// heartbeat is the longest time between two messages to a follower or a node.
	heartbeat = 50 * time.Millisecond
	// leaderless is the time without a leader, in ms, after which a sequencer closes its followers'
	// streams: it may be partitioned, and they would receive nothing new.
	leaderless = 500
	// batchBytes bounds the approximate size of a message to a follower; Options.FollowEvents
	// bounds the events.
	batchBytes = 1 << 20
)

// serveFollow sends the metalog to a storage node, only the part that concerns it, or to a client,
// without cuts.
func (s *Server) serveFollow(st transport.Stream) error {
	req := new(logpb.FollowRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	if !s.began.Load() {
		return errNotBegun
	}
	if err := s.sameCluster(req); err != nil {
		return err
	}
	level := max(1, req.GetLevel())
	cluster := uint32(0)
	if err := s.ask(func() { cluster = s.replica.State().Level() }); err != nil {
		return err
	}
	if err := understands("a process that follows the metalog", level, cluster); err != nil {
		return err
	}
	f := follower{server: s, node: req.GetNode()}
	for _, id := range req.GetShards() {
		f.add(id)
	}
	at := req.GetAfter()
	if f.node != "" {
		if err := s.ask(f.learn); err != nil {
			return err
		}
	}
	count := &s.followers
	if f.node == "" {
		count = &s.clientFollowers
	}
	count.Add(1)
	defer count.Add(-1)
	if f.node == "" && level < sequencer.Level {
		s.oldClients.Add(1)
		defer s.oldClients.Add(-1)
	}
	var told *logpb.Leader // the leader last sent to the follower
	snapshot := req.GetSnapshot()
	checked := at == 0 || req.GetTail() == 0
	// check is called with the next event, which contains the tail before it. If that is less than
	// the follower's tail, entries have been lost that had been sent.
	check := func(e *logpb.Event) error {
		if place := e.GetPlace(); !checked && place < req.GetTail() {
			return sharedlog.Errorf(sharedlog.KindCorrupt,
				"the metalog continues at LSN %d after entry %d, but this process has received it up to %d: the sequencers have lost entries that were published (a power failure under --fsync interval?); see docs/operations.md",
				place, at, req.GetTail())
		}
		checked = true
		return nil
	}
	beat := time.NewTimer(heartbeat)
	defer beat.Stop()
	for {
		if snapshot {
			snap, err := s.snapshot()
			if err != nil {
				return err
			}
			f.learnFrom(snap.GetShards())
			at, snapshot = snap.GetIndex(), false
			told = s.leads.Load()
			if err := st.Send(&logpb.FollowReply{Snapshot: snap, Index: at, Tail: snap.GetTail(), Leader: told}); err != nil {
				return nil
			}
		}
		v := s.history.behind(at)
		if s.now()-s.led.Load() > leaderless {
			return fmt.Errorf("sequencer %d has no leader: try another one", s.opt.ID)
		}
		if v.closed {
			return sharedlog.Errorf(sharedlog.KindClosed, "sequencer %d has ended", s.opt.ID)
		}
		if v.gone {
			// Only a node with replicas that lack part of the order needs the events themselves.
			err, from := replica.ErrGone, at
			if len(req.GetShards()) > 0 {
				at, err = s.replay(st, &f, at, check)
			}
			switch {
			case err == nil:
				beat.Reset(heartbeat)
				if at == from { // a new file is about to be renamed
					select {
					case <-v.changed:
					case <-time.After(heartbeat):
					case <-st.Context().Done():
						return nil
					}
				}
			case !errors.Is(err, replica.ErrGone):
				return err
			case req.GetEventsOnly():
				return st.Send(&logpb.FollowReply{Gone: true})
			default:
				snapshot, checked = true, true
			}
			continue
		}
		if len(v.events) > 0 {
			if err := check(v.events[0]); err != nil {
				return err
			}
		}
		// A follower may be ahead of this sequencer.
		reply := &logpb.FollowReply{Index: max(at, v.index), Tail: v.tail}
		n, size := 0, int32(0)
		for n < min(len(v.events), s.opt.FollowEvents) && size < batchBytes {
			size += v.sizes[n]
			n++
		}
		more := n < len(v.events)
		if more {
			// The tail in the middle is not known: it is sent after the last event.
			v.events = v.events[:n]
			reply.Index, reply.Tail = v.events[n-1].GetIndex(), 0
		}
		for _, e := range v.events {
			if err := understands("a process that follows the metalog", level, e.GetLevel()); err != nil {
				return err
			}
			if e = f.slice(e); e != nil {
				reply.Events = append(reply.Events, e)
			}
		}
		if leads := s.leads.Load(); leads != told && v.index >= at {
			told, reply.Leader = leads, leads
		}
		// A part of the view is always sent, even if no event in it concerns the follower: after
		// the last part the follower has reached the index of the view, below.
		if reply.Leader != nil || reply.Index > at && (more || f.node != "" || len(reply.GetEvents()) > 0) {
			at = reply.GetIndex()
			if err := st.Send(reply); err != nil {
				return nil
			}
			beat.Reset(heartbeat)
			continue
		}
		at = reply.GetIndex()
		select {
		case <-v.changed:
		case <-beat.C:
			beat.Reset(heartbeat)
			if v.index < at {
				continue
			}
			if err := st.Send(&logpb.FollowReply{Index: v.index, Tail: v.tail}); err != nil {
				return nil
			}
		case <-st.Context().Done():
			return nil
		}
	}
}

// sameCluster refuses a follower of another cluster: these sequencers have formed a new one at the
// same addresses and know nothing of the follower's data.
func (s *Server) sameCluster(req *logpb.FollowRequest) error {
	known, same := false, len(req.GetStores()) == 0
	err := s.ask(func() {
		for _, q := range s.replica.State().Sequencers() {
			known = known || q.StoreID != 0
			same = same || slices.Contains(req.GetStores(), q.StoreID)
		}
	})
	if err != nil || same || !known {
		return err
	}
	return sharedlog.Errorf(sharedlog.KindCorrupt, "sequencer %d is of another cluster than the one that this process has followed, which had none of its sequencers: "+
		"were they all started anew (--bootstrap) on empty directories? Restore one of the old directories, or start the storage nodes on empty directories, too", s.opt.ID)
}

// snapshot returns the current state.
func (s *Server) snapshot() (*logpb.Snapshot, error) {
	var snap *logpb.Snapshot
	err := s.ask(func() { snap = snapshot(s.replica.State()) })
	return snap, err
}

// follower selects the events that concern a node.
type follower struct {
	server *Server
	node   string
	// open holds the unsealed shards with a replica on the node, sorted. A few other shards do no
	// harm.
	open []uint32
}

// learn adds the shards in the current state, which may be more than there were at the follower's
// index; that does no harm.
func (f *follower) learn() {
	shards := f.server.replica.State().Shards()
	for i := range shards {
		f.learnFrom([]*logpb.Shard{shard(&shards[i])})
	}
}

func (f *follower) learnFrom(shards []*logpb.Shard) {
	for _, sh := range shards {
		if slices.Contains(sh.GetAddrs(), f.node) {
			f.add(sh.GetId())
		}
	}
}

func (f *follower) add(id uint32) {
	if i, ok := slices.BinarySearch(f.open, id); !ok {
		f.open = slices.Insert(f.open, i, id)
	}
}

func (f *follower) slice(e *logpb.Event) *logpb.Event {
	switch w := e.GetWhat().(type) {
	case *logpb.Event_Opened:
		f.learnFrom([]*logpb.Shard{w.Opened})
	case *logpb.Event_Sealed:
		if i, ok := slices.BinarySearch(f.open, w.Sealed.GetId()); ok {
			f.open = slices.Delete(f.open, i, i+1)
		}
	case *logpb.Event_Cut:
		if f.node == "" {
			return nil
		}
		all := w.Cut.GetRuns() // by shard
		var runs []*logpb.Run
		for _, id := range f.open {
			if i, ok := slices.BinarySearchFunc(all, id, func(r *logpb.Run, id uint32) int { return cmp.Compare(r.GetShard(), id) }); ok {
				runs = append(runs, all[i])
			}
		}
		switch len(runs) {
		case 0:
			return nil
		case len(all):
			return e
		}
		return &logpb.Event{Index: e.GetIndex(), Place: e.GetPlace(), What: &logpb.Event_Cut{Cut: &logpb.Cut{Runs: runs}}}
	case *logpb.Event_Change:
		if f.node == "" {
			return nil
		}
	}
	return e
}
