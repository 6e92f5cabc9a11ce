package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/logtest"
)

// status returns the status of the leading sequencer, or nil if there is none.
func (c *local) status(t testing.TB) *logpb.SequencerStatus {
	d, err := transport.NewDialer(transport.Options{Cluster: "test", TLS: c.tls})
	require.NoError(t, err)
	defer d.Close()
	for _, addr := range c.sequencers {
		s := new(logpb.SequencerStatus)
		if d.Call(t.Context(), addr, "sequencer/status", new(logpb.StatusRequest), s) == nil && s.GetLeader().GetMe() {
			return s
		}
	}
	return nil
}

// writers append continuously, one group after another, and count.
type writers struct {
	t     testing.TB
	count []atomic.Int64
	mu    sync.Mutex
	acked map[string]sharedlog.LSN
	most  time.Duration
	end   func()
}

func startWriters(t testing.TB, l sharedlog.Log, n int) *writers {
	ws := &writers{t: t, count: make([]atomic.Int64, n), acked: map[string]sharedlog.LSN{}}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	ws.end = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(ws.end)
	for i := range n {
		wg.Go(func() {
			w := sharedlog.NewWriter(l, fmt.Sprint("w", i), sharedlog.Condition{})
			for k := 0; ctx.Err() == nil; k++ {
				id := fmt.Sprintf("%d.%d", i, k)
				began := time.Now()
				lsn, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: []byte(id)}).Wait(ctx)
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
					return
				}
				ws.mu.Lock()
				ws.acked[id] = lsn
				ws.most = max(ws.most, time.Since(began))
				ws.mu.Unlock()
				ws.count[i].Add(1)
			}
		})
	}
	return ws
}

// awaitAppends waits until each writer has appended n more groups.
func (ws *writers) awaitAppends(n int64, why string) {
	from := make([]int64, len(ws.count))
	for i := range ws.count {
		from[i] = ws.count[i].Load()
	}
	require.Eventually(ws.t, func() bool {
		for i := range ws.count {
			if ws.count[i].Load() < from[i]+n {
				return false
			}
		}
		return true
	}, time.Minute, 5*time.Millisecond, why)
}

// check ends the writers and checks that everything acknowledged is in the log.
func (ws *writers) check(l sharedlog.Log) {
	ws.end()
	tail, err := l.Tail(ws.t.Context())
	require.NoError(ws.t, err)
	rows, err := logtest.Read(ws.t.Context(), l, 1, tail, "x")
	require.NoError(ws.t, err)
	there := map[string]bool{}
	for _, r := range rows {
		there[r] = true
	}
	for id, lsn := range ws.acked {
		require.True(ws.t, there[fmt.Sprintf("%d:%s", lsn, id)], "%s was acknowledged at %d", id, lsn)
	}
}

// A node comes back without its disk: its replicas of open shards are useless, and those shards are
// replaced. Then another node is lost permanently: with two of three nodes running, the writers
// continue, also those of the third node's shard.
func TestStaleReplicasDoNotCount(t *testing.T) {
	t.Parallel()
	c := newLocal(t, 3, 3)
	l := c.open(t)
	defer l.Close()
	c.primaries(t, 3)
	ws := startWriters(t, l, 9)
	ws.awaitAppends(3, "all are there")
	c.end("storage2")
	c.primaries(t, 2)
	ws.awaitAppends(3, "one of three is away")
	require.NoError(t, os.RemoveAll(filepath.Join(c.dir, "storage2")))
	c.node(2)
	require.Eventually(t, func() bool { return c.whole(t, 3) }, time.Minute, 10*time.Millisecond, "shards with a stale replica stay open")
	ws.awaitAppends(3, "it is back, without its disk")
	c.end("storage1")
	ws.awaitAppends(10, "two of three nodes are up")
	ws.check(l)
}

// The same, with no time to replace anything in between: the stale replicas are discovered when
// they are needed.
func TestStaleReplicasAreNoMajority(t *testing.T) {
	t.Parallel()
	c := newLocal(t, 3, 3)
	l := c.open(t)
	defer l.Close()
	c.primaries(t, 3)
	ws := startWriters(t, l, 9)
	ws.awaitAppends(3, "all are there")
	c.end("storage2")
	c.primaries(t, 2)
	require.NoError(t, os.RemoveAll(filepath.Join(c.dir, "storage2")))
	c.node(2)
	require.Eventually(t, func() bool {
		for _, n := range c.status(t).GetNodes() {
			for _, r := range n.GetReplicas() {
				if r.GetState() == logpb.ReplicaHealth_STALE {
					return true
				}
			}
		}
		return false
	}, time.Minute, time.Millisecond)
	c.end("storage1")
	ws.awaitAppends(10, "two of three nodes are up")
	ws.check(l)
}

// whole reports whether n nodes are primaries of open shards with only healthy replicas.
func (c *local) whole(t testing.TB, n int) bool {
	s := c.status(t)
	well := map[string]bool{}
	for _, node := range s.GetNodes() {
		for _, r := range node.GetReplicas() {
			if node.GetConnected() && r.GetState() == logpb.ReplicaHealth_OK {
				well[fmt.Sprintf("%s of %d", node.GetAddr(), r.GetShard())] = true
			}
		}
	}
	open := 0
	for _, sh := range s.GetShards() {
		if sh.GetSealed() {
			continue
		}
		open++
		for _, a := range sh.GetAddrs() {
			if !well[fmt.Sprintf("%s of %d", a, sh.GetId())] {
				return false
			}
		}
	}
	return open == n
}

// Replicas are spread over zones: a node that restarts is the primary of a shard with one replica
// in each.
func TestReplicasAreSpreadOverZones(t *testing.T) {
	t.Parallel()
	zone := func(i int) string { return fmt.Sprint("zone-", i%3) }
	c := newLocalAs(t, 1, 6, func(c *local) { c.zone = zone })
	c.primaries(t, 6)
	c.end("storage0")
	c.primaries(t, 5)
	c.node(0)
	c.primaries(t, 6)
	zones := map[string]bool{}
	for _, sh := range c.status(t).GetShards() {
		if sh.GetSealed() || sh.GetAddrs()[0] != c.storage[0] {
			continue
		}
		for _, a := range sh.GetAddrs() {
			zones[zone(slices.Index(c.storage, a))] = true
		}
	}
	require.Len(t, zones, 3)
}
