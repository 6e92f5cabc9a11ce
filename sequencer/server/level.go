package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// understands returns an error for a process whose program does not support the cluster's feature
// level: it would misread messages.
func understands(who string, level, cluster uint32) error {
	if level >= cluster {
		return nil
	}
	return sharedlog.Errorf(sharedlog.KindVersion, "the cluster is at feature level %d, and %s runs a program of level %d: start it with a newer program (docs/operations.md, Upgrading)", cluster, who, level)
}

// serveLevel raises the cluster's feature level, if this sequencer leads and every process supports
// it.
func (s *Server) serveLevel(st transport.Stream) error {
	req := new(logpb.LevelRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	reply := new(logpb.LevelReply)
	var ask []*logpb.Sequencer // whose clients must be counted
	if err := s.ask(func() {
		if !s.replica.Leading() {
			reply.Leader = s.leader()
			return
		}
		reply.Level, reply.Wanted = s.replica.State().Level(), req.GetLevel()
		if reply.GetWanted() == 0 {
			reply.Wanted = sequencer.Level
		}
		if reply.GetWanted() <= sequencer.Level {
			reply.TooOld, ask = s.tooOld(reply.GetWanted(), req.GetSilent())
		}
	}); err != nil {
		return err
	}
	switch {
	case reply.GetLeader() != nil, reply.GetLevel() >= reply.GetWanted():
		return st.Send(reply)
	case reply.GetWanted() > sequencer.Level:
		return sharedlog.Errorf(sharedlog.KindInvalid, "this program supports feature levels up to %d, not %d", sequencer.Level, reply.GetWanted())
	}
	for _, q := range ask {
		n, err := s.oldClientsAt(st.Context(), q)
		if err != nil {
			reply.TooOld = append(reply.TooOld, fmt.Sprintf("sequencer %d at %s (it does not answer: %v)", q.GetId(), q.GetAddr(), err))
		} else if n > 0 {
			reply.TooOld = append(reply.TooOld, fmt.Sprintf("%d clients of the log (workers, managers, tools) that follow at sequencer %d, %s", n, q.GetId(), q.GetAddr()))
		}
	}
	if len(reply.GetTooOld()) > 0 || req.GetCheck() {
		return st.Send(reply)
	}
	answered := make(chan struct{})
	if err := s.do(func() {
		err := s.replica.Propose(sequencer.Entry{Kind: sequencer.KindLevel, Level: reply.GetWanted()}, func(ef sequencer.Effect, err error) {
			defer close(answered)
			if reply.Unknown = err != nil; err == nil {
				reply.Level = ef.Level
				s.opt.Logger.Info("the cluster's feature level was raised", "level", ef.Level)
			}
		})
		if err != nil {
			reply.Leader = s.leader()
			close(answered)
		}
	}); err != nil {
		return err
	}
	if err := s.wait(st, answered); err != nil {
		return err
	}
	return st.Send(reply)
}

// tooOld returns the sequencers and storage nodes that do not support a level, or for which that is
// unknown (with silent, disconnected ones do not count), and the sequencers that must be asked for
// their clients. It runs in a turn of the leader.
func (s *Server) tooOld(level uint32, silent bool) (names []string, ask []*logpb.Sequencer) {
	for _, m := range s.memberStatus() {
		q := m.GetMember()
		switch name := fmt.Sprintf("sequencer %d at %s", q.GetId(), q.GetAddr()); {
		case !s.alive(q.GetId()):
			if !silent {
				names = append(names, name+" (it is silent)")
			}
		case m.GetLevel() < level:
			names = append(names, name)
		default:
			ask = append(ask, q)
		}
	}
	placed := map[string]bool{}
	for addr := range s.nodes {
		placed[addr] = true
	}
	shards := s.replica.State().Shards()
	for i := range shards {
		for _, a := range shards[i].Addrs {
			placed[string(a)] = true
		}
	}
	var nodes []string
	for addr := range placed {
		n := s.nodes[addr]
		switch {
		case s.replica.State().Node(addr) == sequencer.NodeRemoved:
		case n == nil || n.Broken > 0:
			if !silent {
				nodes = append(nodes, fmt.Sprintf("storage node %s (it is silent)", addr))
			}
		case n.level < level:
			nodes = append(nodes, "storage node "+addr)
		}
	}
	slices.Sort(nodes)
	return append(names, nodes...), ask
}

// oldClientsAt asks a sequencer for the number of old clients that follow it.
func (s *Server) oldClientsAt(ctx context.Context, q *logpb.Sequencer) (uint64, error) {
	if q.GetId() == s.opt.ID {
		return uint64(s.oldClients.Load()), nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	m := new(logpb.SequencerStatus)
	err := s.opt.Dialer.Call(ctx, q.GetAddr(), "sequencer/status", new(logpb.StatusRequest), m)
	return m.GetOldClients(), err
}
