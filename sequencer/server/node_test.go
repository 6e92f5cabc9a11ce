package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport/memory"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sequencer/controller"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// A node's later messages contain only changes: if one was not applied, or the first one was
// received in an earlier leadership, none is applied until the node reconnects.
func TestAMissedWordEndsTheSession(t *testing.T) {
	s, err := Start(Options{ID: 1, Peers: map[uint64]string{1: "127.0.0.1:1"}, Bootstrap: true, FS: vfs.NewMem(), Dir: "d", Tick: time.Millisecond})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.Eventually(t, s.began.Load, time.Minute, time.Millisecond)
	ask := func(f func()) { require.NoError(t, s.ask(f)) }
	word := func(addr string) *logpb.NodeReport { return &logpb.NodeReport{Addr: addr, Incarnation: 1, Level: 2} }
	early := new(session)
	leads := false
	ask(func() {
		if leads = s.replica.Leading(); !leads {
			s.report(early, word("early"))
		}
	})
	require.Eventually(t, func() bool {
		ask(func() { leads = s.replica.Leading() })
		return leads
	}, time.Minute, time.Millisecond)
	ask(func() {
		before := &session{addr: "before", term: s.replica.Term() - 1}
		s.report(before, word("before"))
		require.True(t, before.missed)
		require.Nil(t, s.nodes["before"])
		if early.missed { // it did not lead at once
			s.report(early, word("early"))
			require.Nil(t, s.nodes["early"])
		}
	})
}

// longSilence is the time after which the controller of patient considers a node silent.
const longSilence = 1 << 40

// patient starts a sequencer that leads alone, and whose controller considers no node silent. ask
// calls f in a turn, propose waits until an entry is decided.
func patient(t *testing.T) (s *Server, ask func(f func()), propose func(e sequencer.Entry)) {
	s = alone(t, vfs.NewMem(), func(o *Options) {
		o.Dialer, o.Controller = memory.New(), controller.Default
		o.Controller.Silence = longSilence
	})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	ask = func(f func()) { require.NoError(t, s.ask(f)) }
	propose = func(e sequencer.Entry) {
		done := make(chan error, 1)
		ask(func() { require.NoError(t, s.replica.Propose(e, func(_ sequencer.Effect, err error) { done <- err })) })
		require.NoError(t, <-done)
	}
	return s, ask, propose
}

// A node's reports of its replicas reach the controller: all of them at first, then changes; a
// removed node is refused with the remedy.
func TestReportsOfReplicas(t *testing.T) {
	s, ask, propose := patient(t)
	for range 2 { // of another primary, so that the controller does not seal them
		propose(sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: 9, Addrs: [][]byte{[]byte("b"), []byte("a")}})
	}
	me := new(session)
	report := func(r *logpb.NodeReport) {
		r.Addr, r.Incarnation, r.Level = "a", 1, 2
		ask(func() { s.report(me, r) })
	}
	get := func() (n controller.Node) {
		ask(func() { n = s.nodes["a"].Node })
		return n
	}
	replica := func(shard uint32, state logpb.ReplicaHealth_State) *logpb.ReplicaHealth {
		return &logpb.ReplicaHealth{Shard: shard, State: state, Length: 7}
	}
	report(&logpb.NodeReport{Zone: "z", Readonly: true, Full: []uint32{5, 4}, FullChanged: true, Replicas: []*logpb.ReplicaHealth{
		replica(1, logpb.ReplicaHealth_STALE), replica(2, logpb.ReplicaHealth_OK), replica(3, logpb.ReplicaHealth_BEHIND),
	}})
	n := get()
	require.True(t, n.Reports)
	require.True(t, n.ReadOnly)
	require.Equal(t, "z", n.Zone)
	require.Equal(t, []sequencer.ShardID{4, 5}, n.Full)
	require.Zero(t, n.Failed, "it was away")
	require.Equal(t, []controller.Health{controller.Stale, controller.OK, controller.Behind}, []controller.Health{n.Replicas[0].Health, n.Replicas[1].Health, n.Replicas[2].Health})
	report(&logpb.NodeReport{Replicas: []*logpb.ReplicaHealth{replica(2, logpb.ReplicaHealth_DAMAGED)}, Reports: []*logpb.Report{{Shard: 2, Bytes: 100}}})
	n = get()
	require.False(t, n.ReadOnly)
	require.Len(t, n.Replicas, 3)
	require.Equal(t, controller.Damaged, n.Replicas[1].Health)
	require.EqualValues(t, 100, n.Replicas[1].Bytes)
	report(&logpb.NodeReport{Replicas: []*logpb.ReplicaHealth{replica(2, logpb.ReplicaHealth_STALE)}})
	require.NotZero(t, get().Failed, "it has lost it")

	ask(func() { s.report(new(session), &logpb.NodeReport{Addr: "a", Incarnation: 2, Level: 2}) })
	n = get()
	require.EqualValues(t, 2, n.Incarnation)
	require.Empty(t, n.Full, "another process says for itself what it holds")
	require.Empty(t, n.Replicas)
	require.Zero(t, n.Failed)

	propose(sequencer.Entry{Kind: sequencer.KindNode, Node: sequencer.Node{Addr: "a", State: sequencer.NodeRemoved}})
	again := new(session)
	ask(func() { s.report(again, &logpb.NodeReport{Addr: "a", Incarnation: 2, Level: 2}) })
	require.ErrorIs(t, again.err, sharedlog.ErrInvalid)
	require.ErrorContains(t, again.err, "was removed")
}

// An operator's change of a node is refused, with the reason, if there are too few others, if they
// lack what it holds, or if it was removed.
func TestANodeIsRemovedWhenItIsNotNeeded(t *testing.T) {
	s, ask, propose := patient(t)
	report := func(addr string, full ...uint32) {
		ask(func() {
			s.report(new(session), &logpb.NodeReport{Addr: addr, Incarnation: 1, Level: 2, Readonly: true, FullChanged: true, Full: full})
		})
	}
	reportedFor := int64(0)
	want := func(addr string, state sequencer.NodeState, wantEarly bool, wantRefused string) {
		t.Helper()
		var early bool
		var refused error
		ask(func() {
			now := s.since
			s.since -= reportedFor // in the same turn: otherwise the controller would seal the shards of silent nodes
			early, refused = s.admitNode(sequencer.Node{Addr: addr, State: state})
			s.since = now
		})
		require.Equal(t, wantEarly, early)
		if wantRefused == "" {
			require.NoError(t, refused)
			return
		}
		require.ErrorIs(t, refused, sharedlog.ErrInvalid)
		require.ErrorContains(t, refused, wantRefused)
	}
	addrs := func(all ...string) (addrs [][]byte) {
		for _, a := range all {
			addrs = append(addrs, []byte(a))
		}
		return addrs
	}
	want("a", sequencer.NodeDraining, true, "")
	reportedFor = longSilence
	want("a", sequencer.NodeDraining, false, "no storage node at")
	propose(sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: 1, Addrs: addrs("a", "b", "c")})
	propose(sequencer.Entry{Kind: sequencer.KindCut, Cut: []sequencer.Length{{Shard: 1, Length: 5}}})
	want("a", sequencer.NodeDraining, false, "start 3 more first")
	propose(sequencer.Entry{Kind: sequencer.KindNode, Node: sequencer.Node{Addr: "a", State: sequencer.NodeDraining}})
	want("a", sequencer.NodeRemoved, false, "it has replicas of 1 open shards; there are 3 storage nodes too few")
	want("b", sequencer.NodeRemoved, false, "is in use; move what it holds to other nodes first: tailrace log drain b")
	propose(sequencer.Entry{Kind: sequencer.KindSeal, Shard: 1})
	report("a", 1)
	want("a", sequencer.NodeRemoved, false, "1 sealed shards have too few other whole copies, 1 of them none")
	report("b", 1)
	report("c", 1)
	want("a", sequencer.NodeRemoved, false, "1 sealed shards have too few other whole copies, 0 of them none")
	propose(sequencer.Entry{Kind: sequencer.KindPlace, Shard: 1, Addrs: addrs("b", "c", "d")})
	report("d", 1)
	want("a", sequencer.NodeRemoved, false, "")
	ask(func() {
		s.pending = append(s.pending, sequencer.Entry{Kind: sequencer.KindOpen, Addrs: addrs("b", "a")})
	})
	want("a", sequencer.NodeRemoved, false, "it has replicas of 1 open shards")
	propose(sequencer.Entry{Kind: sequencer.KindNode, Node: sequencer.Node{Addr: "a", State: sequencer.NodeRemoved}})
	want("a", sequencer.NodeRemoved, false, "")
	want("a", sequencer.NodeActive, false, "was removed, which is for good")

	room := func(addr string) {
		ask(func() { s.report(new(session), &logpb.NodeReport{Addr: addr, Incarnation: 1, Level: 2}) })
	}
	room("e")
	room("f")
	want("b", sequencer.NodeDraining, false, "start 1 more first")
	room("g")
	want("b", sequencer.NodeDraining, false, "")
	// A node that may hold something, and has never reported, may run any program.
	propose(sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: 1, Addrs: addrs("e", "away", "g")})
	for _, silent := range []bool{false, true} {
		var old []string
		ask(func() { old, _ = s.tooOld(sequencer.Level, silent) })
		if silent {
			require.Empty(t, old)
		} else {
			require.Equal(t, []string{"storage node away (it is silent)"}, old)
		}
	}
}
