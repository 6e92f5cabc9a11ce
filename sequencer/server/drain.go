package server

import (
	"fmt"
	"slices"
	"strings"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sequencer/controller"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// admitNode decides whether the leader proposes the state that an operator wants for a storage
// node. early is set if this leadership has no report from some nodes yet; the operator's command then
// asks again.
func (s *Server) admitNode(n sequencer.Node) (early bool, refused error) {
	old := s.replica.State().Node(n.Addr)
	switch {
	case old == n.State: // repeated request
		return false, nil
	case old == sequencer.NodeRemoved:
		return false, sharedlog.Errorf(sharedlog.KindInvalid, "the storage node %s was removed, which is for good; start another one with an empty directory at another address", n.Addr)
	case n.State == sequencer.NodeActive:
		return false, nil
	case s.now()-s.since < s.opt.Controller.Silence:
		return true, nil
	case !s.knowsNode(n.Addr):
		return false, sharedlog.Errorf(sharedlog.KindInvalid, "no storage node at %q is known; tailrace log nodes lists them", n.Addr)
	}
	left := s.left(n.Addr)
	switch {
	case n.State == sequencer.NodeDraining && left.Short > 0:
		return false, sharedlog.Errorf(sharedlog.KindInvalid,
			"%s cannot be drained: a shard has %d replicas, and too few other storage nodes can hold them; start %d more first", n.Addr, s.opt.Controller.Replicas, left.Short)
	case n.State == sequencer.NodeRemoved && old != sequencer.NodeDraining:
		return false, sharedlog.Errorf(sharedlog.KindInvalid, "%s is in use; move what it holds to other nodes first: tailrace log drain %s", n.Addr, n.Addr)
	case n.State == sequencer.NodeRemoved && left.Open+left.Sealed > 0:
		return false, sharedlog.Errorf(sharedlog.KindInvalid, "%s is still needed: %s; tailrace log drain %s waits until it is not", n.Addr, leftText(left), n.Addr)
	}
	return false, nil
}

func leftText(left controller.Left) string {
	var why []string
	if left.Open > 0 {
		why = append(why, fmt.Sprintf("it has replicas of %d open shards", left.Open))
	}
	if left.Sealed > 0 {
		why = append(why, fmt.Sprintf("%d sealed shards have too few other whole copies, %d of them none", left.Sealed, left.Only))
	}
	if left.Short > 0 {
		why = append(why, fmt.Sprintf("there are %d storage nodes too few to take them", left.Short))
	}
	return strings.Join(why, "; ")
}

// knowsNode reports whether there is, or was, a storage node at an address.
func (s *Server) knowsNode(addr string) bool {
	state := s.replica.State()
	if s.nodes[addr] != nil || state.Node(addr) != sequencer.NodeActive {
		return true
	}
	return slices.ContainsFunc(state.Shards(), func(sh sequencer.Shard) bool {
		return slices.ContainsFunc(sh.Addrs, func(a []byte) bool { return string(a) == addr })
	})
}

// left returns what must still move from the node to others, including what is about to be placed
// on it.
func (s *Server) left(addr string) controller.Left {
	left := controller.Drained(s.replica.State(), s.facts(), s.since, s.now(), s.opt.Controller, addr)
	for _, e := range s.pending {
		if slices.ContainsFunc(e.Addrs, func(a []byte) bool { return string(a) == addr }) {
			if e.Kind == sequencer.KindOpen {
				left.Open++
			} else {
				left.Sealed++
			}
		}
	}
	return left
}

// drainStatus adds to the status the states that the operator has set: for connected nodes, and for
// others that are not active.
func (s *Server) drainStatus(m *logpb.SequencerStatus) {
	s.replica.State().Nodes(func(n sequencer.Node) {
		i := slices.IndexFunc(m.Nodes, func(ns *logpb.NodeStatus) bool { return ns.GetAddr() == n.Addr })
		if i < 0 {
			i = len(m.Nodes)
			m.Nodes = append(m.Nodes, &logpb.NodeStatus{Addr: n.Addr, SilentMs: -1})
		}
		m.Nodes[i].State = logpb.Node_State(n.State)
		if s.replica.Leading() && n.State == sequencer.NodeDraining {
			left := s.left(n.Addr)
			m.Nodes[i].Left = &logpb.NodeLeft{Open: uint32(left.Open), Sealed: uint32(left.Sealed), Only: uint32(left.Only), Short: uint32(left.Short)}
		}
	})
}
