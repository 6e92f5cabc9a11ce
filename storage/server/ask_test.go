package server

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// What was asked of a replica is not done any more when who asked was told that it has
// ended: he goes on with what it would have written to.
func TestNothingIsDoneBehindTheAnswer(t *testing.T) {
	for range 20 {
		n := start(t, vfs.NewMem(), self)
		require.NoError(t, n.restart(&logpb.Snapshot{Index: 7, Tail: 1, Shards: []*logpb.Shard{{Id: 1, Addrs: []string{self}, Incarnation: n.incarnation, Opened: 1}}}))
		r := n.replica(1)
		r.turnMu.Lock() // a turn takes long
		var done atomic.Bool
		answer := make(chan bool, 1)
		go func() { answer <- r.ask(func() { done.Store(true) }) }()
		for len(r.wake) == 0 && !waits(r) { // until it was put
		}
		n.stop(nil)
		require.False(t, <-answer)
		r.turnMu.Unlock()
		require.NoError(t, n.Close())
		require.False(t, done.Load())
	}
}

// waits says whether there is something in the inbox.
func waits(r *replica) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.inbox) > 0
}
