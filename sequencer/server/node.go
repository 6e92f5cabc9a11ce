package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sequencer/controller"
	"tailrace.dev/tailrace/sequencer/replica"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// node is a storage node that reports to this leader.
type node struct {
	controller.Node
	session     *session
	applied     uint64
	disk        uint64
	free        uint64
	level       uint32
	empty       map[sequencer.ShardID]bool // sealed shards that it holds and in which nothing is left
	lastMessage int64                      // last message
	reached     int64                      // last answer to a ping
}

// session is one stream of a node. Its first message contains the whole state, later ones the
// changes. If a message was not applied, or the first one was received in an earlier leadership,
// the node must reconnect and send the whole state again. It is protected by turnMu.
type session struct {
	addr   string
	term   uint64 // of the leadership in which the first message was received
	missed bool
	later  bool  // the first message has been applied
	err    error // why the node is refused
}

// serveNode receives the reports of a storage node, if this sequencer leads. Otherwise it returns
// the leader and ends.
func (s *Server) serveNode(st transport.Stream) error {
	me := new(session)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			r := new(logpb.NodeReport)
			if st.Recv(r) != nil {
				break
			}
			if s.do(func() { s.report(me, r) }) != nil {
				break
			}
		}
		_ = s.do(func() {
			if n := s.nodes[me.addr]; n != nil && n.session == me {
				n.Broken = max(1, s.now())
			}
		})
	}()
	t := time.NewTicker(heartbeat)
	defer t.Stop()
	for {
		var l *logpb.Leader
		missed := false
		var refused error
		if err := s.ask(func() { l, missed, refused = s.leader(), me.missed, me.err }); err != nil {
			return err
		}
		if refused != nil {
			return refused
		}
		if st.Send(l) != nil || !l.GetMe() || missed {
			return nil
		}
		select {
		case <-t.C:
		case <-gone:
			return nil
		}
	}
}

func (s *Server) leader() *logpb.Leader {
	id := s.replica.Leader()
	return &logpb.Leader{Id: id, Addr: s.address(id), Me: s.replica.Leading()}
}

// report applies a report of a node. It runs in a turn.
func (s *Server) report(me *session, r *logpb.NodeReport) {
	if me.term == 0 {
		me.term = s.replica.Term()
	}
	if !s.replica.Leading() || me.missed || me.term != s.replica.Term() {
		me.missed = true
		return
	}
	if !s.leading {
		s.control() // the leadership has just started: drop the nodes of an earlier one
	}
	if s.replica.State().Node(r.GetAddr()) == sequencer.NodeRemoved {
		me.err = sharedlog.Errorf(sharedlog.KindInvalid,
			"the storage node %s was removed from the cluster; to use its machine again, start it with an empty directory at another address", r.GetAddr())
		return
	}
	if me.err = understands("the storage node "+r.GetAddr(), max(1, r.GetLevel()), s.replica.State().Level()); me.err != nil {
		return
	}
	me.addr = r.GetAddr()
	n := s.nodes[me.addr]
	if n == nil {
		n = &node{Node: controller.Node{Addr: me.addr}, reached: s.now()}
		s.nodes[me.addr] = n
		s.peerWG.Go(func() { s.probe(n) })
	}
	if n.session != me {
		n.session, n.Broken = me, 0
	}
	if n.Incarnation != r.GetIncarnation() {
		n.Restarted(r.GetIncarnation())
		n.empty = nil
	}
	n.lastMessage = s.now()
	n.LastReport = min(n.lastMessage, n.reached+probeEvery)
	n.applied, n.disk, n.free, n.level = r.GetApplied(), r.GetDiskBytes(), r.GetFreeBytes(), max(1, r.GetLevel())
	n.Zone, n.ReadOnly, n.Reports = r.GetZone(), r.GetReadonly(), n.level >= 2
	if r.GetFullChanged() {
		n.Full = nil
		for _, id := range r.GetFull() {
			n.Full = append(n.Full, sequencer.ShardID(id))
		}
		slices.Sort(n.Full)
	}
	if r.GetEmptyChanged() {
		n.empty = map[sequencer.ShardID]bool{}
		for _, id := range r.GetEmpty() {
			n.empty[sequencer.ShardID(id)] = true
		}
	}
	for _, h := range r.GetReplicas() {
		n.Take(controller.Replica{Shard: sequencer.ShardID(h.GetShard()), Health: health[h.GetState()], Length: h.GetLength()}, !me.later, s.now())
	}
	me.later = true
	for _, rep := range r.GetReports() {
		n.Grew(sequencer.ShardID(rep.GetShard()), rep.GetBytes())
		_ = s.replica.Report(sequencer.Report{Shard: sequencer.ShardID(rep.GetShard()), Incarnation: rep.GetIncarnation(), Length: rep.GetLength()})
	}
}

// health maps the reported state of a replica to the controller's.
var health = map[logpb.ReplicaHealth_State]controller.Health{
	logpb.ReplicaHealth_OK: controller.OK, logpb.ReplicaHealth_BEHIND: controller.Behind,
	logpb.ReplicaHealth_STALE: controller.Stale, logpb.ReplicaHealth_DAMAGED: controller.Damaged,
}

// facts returns the controller's input on nodes.
func (s *Server) facts() []controller.Node {
	shards := s.replica.State().Shards()
	for i := range shards {
		if sh := &shards[i]; !sh.Sealed {
			for _, a := range sh.Addrs {
				if n := s.nodes[string(a)]; n != nil {
					n.Expect(sh.ID, s.now())
				}
			}
		}
	}
	nodes := make([]controller.Node, 0, len(s.nodes))
	for _, n := range s.nodes {
		n.Keep(s.replica.State(), s.now(), s.opt.Controller)
		nodes = append(nodes, n.Node)
	}
	return nodes
}

// probeEvery is the interval, in ms, at which the leader pings a node.
const probeEvery = 250

// probe pings a node at its address for as long as this leadership knows it. A node that sends
// reports but cannot be reached (a broken link, a wrong --advertise) is of no use to writers and
// backups: it counts as silent.
func (s *Server) probe(n *node) {
	t := time.NewTicker(probeEvery * time.Millisecond)
	defer t.Stop()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*probeEvery*time.Millisecond)
		stop := context.AfterFunc(s.ctx, cancel)
		err := s.opt.Dialer.Call(ctx, n.Addr, "storage/ping", new(logpb.StatusRequest), new(logpb.StatusRequest))
		stop()
		cancel()
		known := false
		if s.ask(func() {
			if known = s.nodes[n.Addr] == n; known && err == nil {
				n.reached = s.now()
				n.LastReport = min(n.lastMessage, n.reached+probeEvery)
			}
		}) != nil || !known {
			return
		}
		select {
		case <-t.C:
		case <-s.quit:
			return
		}
	}
}

func (s *Server) servePropose(st transport.Stream) error {
	req := new(logpb.ProposeRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	e, err := entry(req)
	if err != nil {
		return err
	}
	reply := new(logpb.ProposeReply)
	answered := make(chan struct{})
	refused := error(nil)
	err = s.do(func() {
		if s.replica.Leading() {
			if refused = atLevel(e.Kind, s.replica.State().Level()); refused != nil {
				close(answered)
				return
			}
			if refused = s.opt.Quotas.check(s.replica.State(), e); refused != nil {
				s.quotaRefused.Add(1)
				close(answered)
				return
			}
			if e.Kind == sequencer.KindNode {
				var early bool
				if early, refused = s.admitNode(e.Node); early || refused != nil {
					reply.Leader = s.leader() // the client must ask again
					close(answered)
					return
				}
			}
		}
		err := s.replica.Propose(e, func(ef sequencer.Effect, err error) {
			defer close(answered)
			if err != nil {
				reply.Unknown = true
				return
			}
			reply.Ok, reply.Place, reply.Value, reply.Index = ef.OK, uint64(ef.Place), ef.Value, ef.Index
		})
		if err != nil {
			reply.Leader = s.leader()
			close(answered)
		}
	})
	if err != nil {
		return err
	}
	if err := s.wait(st, answered); err != nil {
		return err
	}
	if refused != nil {
		return refused
	}
	return st.Send(reply)
}

// atLevel refuses entries that some of the cluster's processes may not understand yet.
func atLevel(kind sequencer.Kind, level uint32) error {
	if kind.Level() <= level {
		return nil
	}
	return sharedlog.Errorf(sharedlog.KindVersion, "this needs feature level %d, and the cluster is at level %d: raise it when every process runs a program that speaks it (docs/operations.md)", kind.Level(), level)
}

func (s *Server) serveGet(st transport.Stream) error {
	req := new(logpb.GetRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	reply := new(logpb.GetReply)
	answered := make(chan struct{})
	err := s.do(func() {
		err := s.replica.Tail(func(tail sharedlog.LSN, err error) {
			defer close(answered)
			if err != nil {
				reply.Leader = s.leader()
				return
			}
			reply.Place, reply.Opened = uint64(tail), s.replica.State().Opened()
			if req.GetKey() != "" {
				reply.Value = s.replica.State().Value(req.GetKey())
			}
		})
		if errors.Is(err, replica.ErrNotLeader) {
			reply.Leader = s.leader()
			close(answered)
		}
	})
	if err != nil {
		return err
	}
	if err := s.wait(st, answered); err != nil {
		return err
	}
	return st.Send(reply)
}

func (s *Server) wait(st transport.Stream, answered <-chan struct{}) error {
	select {
	case <-answered:
		return nil
	case <-st.Context().Done():
		return st.Context().Err()
	case <-s.done:
		return errEnded
	}
}

func (s *Server) serveStatus(st transport.Stream) error {
	if err := st.Recv(new(logpb.StatusRequest)); err != nil {
		return err
	}
	m, err := s.Status()
	if err != nil {
		return err
	}
	return st.Send(m)
}

// Status returns the state of the sequencer, and of the cluster if this sequencer leads.
func (s *Server) Status() (*logpb.SequencerStatus, error) {
	m := &logpb.SequencerStatus{Id: s.opt.ID, Addr: s.opt.Addr, Version: s.opt.Version, Cluster: s.opt.Cluster}
	if !s.began.Load() {
		m.Waiting = "looking for the other sequencers"
		if w := s.waiting.Load(); w != nil {
			m.Waiting = *w
		}
		return m, nil
	}
	err := s.ask(func() {
		state := s.replica.State()
		m.Leader, m.Term, m.Applied = s.leader(), s.replica.Term(), state.Applied()
		m.Tail, m.Generation, m.Cuts = uint64(state.Tail()), state.Generation(), s.cuts
		m.ReplicasWanted, m.ShardBytes = uint32(s.opt.Controller.Replicas), s.opt.Controller.ShardBytes
		m.OldClients = uint64(s.oldClients.Load())
		m.Followers, m.ClientFollowers = uint64(s.followers.Load()), uint64(s.clientFollowers.Load())
		m.Level, m.Members, m.Tables = state.Level(), s.memberStatus(), s.tables()
		shards := state.Shards()
		for i := range shards {
			m.Shards = append(m.Shards, shard(&shards[i]))
		}
		for _, n := range s.nodes {
			ns := &logpb.NodeStatus{
				Addr: n.Addr, Incarnation: n.Incarnation, SilentMs: s.now() - n.lastMessage, Connected: n.Broken == 0,
				Applied: n.applied, DiskBytes: n.disk,
			}
			ns.Zone, ns.Readonly, ns.FreeBytes, ns.Level = n.Zone, n.ReadOnly, n.free, n.level
			for _, id := range n.Full {
				ns.Full = append(ns.Full, uint32(id))
			}
			for _, r := range n.Replicas {
				ns.Replicas = append(ns.Replicas, &logpb.ReplicaHealth{Shard: uint32(r.Shard), State: logpb.ReplicaHealth_State(r.Health), Length: r.Length})
			}
			m.Nodes = append(m.Nodes, ns)
		}
		s.drainStatus(m)
	})
	return m, err
}
