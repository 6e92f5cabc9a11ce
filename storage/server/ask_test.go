package server

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// A call that was answered "closed" must not run afterwards: the caller may reuse what f writes to.
func TestNothingIsDoneBehindTheAnswer(t *testing.T) {
	for range 20 {
		n := start(t, vfs.NewMem(), self)
		require.NoError(t, n.restart(&logpb.Snapshot{Index: 7, Tail: 1, Shards: []*logpb.Shard{{Id: 1, Addrs: []string{self}, Incarnation: n.incarnation, Opened: 1}}}))
		r := n.replica(1)
		r.lock() // a long turn
		var done atomic.Bool
		answer := make(chan bool, 1)
		go func() { answer <- r.ask(func(*loop) { done.Store(true) }) }()
		for len(r.wake) == 0 && !waits(r) { // until it is queued
		}
		n.stop(nil)
		require.False(t, <-answer)
		r.unlock()
		require.NoError(t, n.Close())
		require.False(t, done.Load())
	}
}

// waits reports whether the inbox is not empty.
func waits(r *replica) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.inbox) > 0
}
