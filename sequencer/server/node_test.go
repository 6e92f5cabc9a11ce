package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
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
