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

// A node's later words say only what has changed: if one was not heard, or the first one
// was said under an earlier leadership, none is taken until the node comes again.
func TestAMissedWordEndsTheSession(t *testing.T) {
	s, err := Start(Options{ID: 1, Peers: map[uint64]string{1: "127.0.0.1:1"}, Bootstrap: true, FS: vfs.NewMem(), Dir: "d", Tick: time.Millisecond})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.Eventually(t, s.began.Load, time.Minute, time.Millisecond)
	ask := func(f func()) { require.NoError(t, s.ask(f)) }
	word := func(addr string) *logpb.NodeReport { return &logpb.NodeReport{Addr: addr, Incarnation: 1} }
	early := new(session)
	leads := false
	ask(func() {
		if leads = s.replica.Leading(); !leads {
			s.hear(early, word("early"))
		}
	})
	require.Eventually(t, func() bool {
		ask(func() { leads = s.replica.Leading() })
		return leads
	}, time.Minute, time.Millisecond)
	ask(func() {
		before := &session{addr: "before", term: s.replica.Term() - 1}
		s.hear(before, word("before"))
		require.True(t, before.missed)
		require.Nil(t, s.nodes["before"])
		if early.missed { // it did not lead at once
			s.hear(early, word("early"))
			require.Nil(t, s.nodes["early"])
		}
	})
}

// What a node reports of its replicas reaches the controller: all of them at first, then
// changes; a removed node is refused, and told what to do.
func TestReportsOfReplicas(t *testing.T) {
	patient := controller.Default
	patient.Silence = 1 << 40
	s, err := Start(Options{
		ID: 1, Peers: map[uint64]string{1: "127.0.0.1:1"}, Bootstrap: true, FS: vfs.NewMem(), Dir: "d", Tick: time.Millisecond, Dialer: memory.New(), Controller: patient,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	ask := func(f func()) { require.NoError(t, s.ask(f)) }
	require.Eventually(t, func() (leads bool) {
		return s.ask(func() { leads = s.replica.Leading() }) == nil && leads
	}, time.Minute, time.Millisecond)
	propose := func(e sequencer.Entry) {
		done := make(chan error, 1)
		ask(func() { require.NoError(t, s.replica.Propose(e, func(_ sequencer.Effect, err error) { done <- err })) })
		require.NoError(t, <-done)
	}
	for range 2 { // another primary's, so that the controller leaves them alone
		propose(sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: 9, Addrs: [][]byte{[]byte("b"), []byte("a")}})
	}
	me := new(session)
	report := func(r *logpb.NodeReport) {
		r.Addr, r.Incarnation, r.Level = "a", 1, 2
		ask(func() { s.hear(me, r) })
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

	propose(sequencer.Entry{Kind: sequencer.KindNode, Node: sequencer.Node{Addr: "a", State: sequencer.NodeRemoved}})
	again := new(session)
	ask(func() { s.hear(again, &logpb.NodeReport{Addr: "a", Incarnation: 2, Level: 2}) })
	require.ErrorIs(t, again.err, sharedlog.ErrInvalid)
	require.ErrorContains(t, again.err, "was removed")
}
