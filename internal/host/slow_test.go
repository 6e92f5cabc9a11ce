package host_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/logtest"
)

// The disk of one node of three hangs: writers with their home elsewhere continue, because a
// majority of those shards' replicas works without it. When the disk works again every node
// continues, and nothing is lost or duplicated.
func TestSlowDisk(t *testing.T) {
	c := newLocal(t, 1, 3)
	require.NoError(t, c.open(t).Close())
	c.end("storage1")
	c.primaries(t, 2)
	var gate sync.RWMutex // locked: the disk hangs
	var hangs atomic.Int64
	c.nodeOn(1, vfs.Inject(vfs.OS, func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite || op.Kind == vfs.OpSync {
			hangs.Add(1)
			defer hangs.Add(-1)
			gate.RLock()
			defer gate.RUnlock()
		}
		return nil
	}))
	c.primaries(t, 3) // otherwise no writer would have its home at the new process
	l := c.open(t)
	defer l.Close()
	const writers = 12 // by the hash of their names at most five of them have their home at one node
	var counts [writers]atomic.Int64
	var mu sync.Mutex
	acked := map[string]sharedlog.LSN{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	end := sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
	})
	defer end()
	for i := range writers {
		wg.Go(func() {
			w := sharedlog.NewWriter(l, fmt.Sprint("w", i), sharedlog.Condition{})
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("%d.%d", i, n)
				lsn, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: []byte(id)}).Wait(t.Context())
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
					return
				}
				mu.Lock()
				acked[id] = lsn
				mu.Unlock()
				counts[i].Add(1)
			}
		})
	}
	// reach waits until many of the writers have appended n more records.
	reach := func(n int64, many int) {
		var from [writers]int64
		for i := range counts {
			from[i] = counts[i].Load()
		}
		require.Eventually(t, func() bool {
			there := 0
			for i := range counts {
				if counts[i].Load() >= from[i]+n {
					there++
				}
			}
			return there >= many
		}, 2*time.Minute, time.Millisecond)
	}
	reach(5, writers)
	gate.Lock()
	release := sync.OnceFunc(gate.Unlock)
	defer release() // otherwise nothing would end
	require.Eventually(t, func() bool { return hangs.Load() > 0 }, 2*time.Minute, time.Millisecond)
	reach(50, writers/2) // far more than are in flight; a larger number would only measure the machine's speed
	release()
	reach(20, writers)
	end()
	tail, err := l.Tail(t.Context())
	require.NoError(t, err)
	rows, err := logtest.Read(t.Context(), l, 1, tail, "x")
	require.NoError(t, err)
	require.Len(t, rows, len(acked))
	for id, lsn := range acked {
		require.Contains(t, rows, fmt.Sprintf("%d:%s", lsn, id))
	}
}

// primaries waits until exactly n storage nodes are primaries of open shards.
func (c *local) primaries(t testing.TB, n int) {
	d, err := transport.NewDialer(transport.Options{Cluster: "test", TLS: c.tls})
	require.NoError(t, err)
	defer d.Close()
	require.Eventually(t, func() bool {
		s := new(logpb.SequencerStatus)
		if d.Call(t.Context(), c.sequencers[0], "sequencer/status", new(logpb.StatusRequest), s) != nil {
			return false
		}
		at := map[string]bool{}
		for _, sh := range s.GetShards() {
			if !sh.GetSealed() {
				at[sh.GetAddrs()[0]] = true
			}
		}
		return len(at) == n
	}, 3*time.Minute, 5*time.Millisecond)
}
