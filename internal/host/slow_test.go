package host_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logtest"
)

// The disk of one node of three becomes slow: whoever is at home there waits for it, and
// for it alone; a majority of the other shards' replicas does without. Nothing is sealed,
// nothing is lost, and when the disk is well again the node has everything.
func TestSlowDisk(t *testing.T) {
	c := newLocal(t, 1, 3)
	require.NoError(t, c.open(t).Close())
	c.end("storage1")
	var slow atomic.Bool
	c.nodeOn(1, vfs.Inject(vfs.OS, func(op vfs.Op) error {
		if slow.Load() && (op.Kind == vfs.OpWrite || op.Kind == vfs.OpSync) {
			fault := time.NewTimer(40 * time.Millisecond)
			<-fault.C
		}
		return nil
	}))
	l := c.open(t)
	defer l.Close()
	// One that is at home at the slow disk: the node's new shard opens a little later.
	var at1 *sharedlog.Writer
	slow.Store(true)
	probes := map[string]sharedlog.LSN{}
	require.Eventually(t, func() bool {
		at1 = sharedlog.NewWriter(l, fmt.Sprint("probe", len(probes)), sharedlog.Condition{})
		for n := range 3 { // one append may be slow by chance
			id := fmt.Sprintf("%s.%d", at1.Name(), n)
			begun := time.Now()
			lsn, err := at1.Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: []byte(id)}).Wait(t.Context())
			require.NoError(t, err)
			probes[id] = lsn
			if time.Since(begun) < 40*time.Millisecond {
				return false
			}
		}
		return true
	}, 20*time.Second, time.Millisecond)
	slow.Store(false)
	const writers = 12
	var counts [writers]atomic.Int64
	var mu sync.Mutex
	acked := probes
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			w := at1
			if i > 0 {
				w = sharedlog.NewWriter(l, fmt.Sprint("w", i), sharedlog.Condition{})
			}
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
	reach := func(n int64, all bool) {
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
			return there == writers || !all && there >= writers/2
		}, 30*time.Second, time.Millisecond)
	}
	reach(5, true)
	slow.Store(true)
	var before [writers]int64
	for i := range counts {
		before[i] = counts[i].Load()
	}
	reach(300, false)
	slowest, fastest := int64(1<<60), int64(0)
	for i := range counts {
		n := counts[i].Load() - before[i]
		slowest, fastest = min(slowest, n), max(fastest, n)
	}
	require.Less(t, slowest, fastest/3, "everybody waits for the slow disk")
	slow.Store(false)
	reach(20, true)
	close(stop)
	wg.Wait()
	tail, err := l.Tail(t.Context())
	require.NoError(t, err)
	rows, err := logtest.Read(t.Context(), l, 1, tail, "x")
	require.NoError(t, err)
	require.Len(t, rows, len(acked))
	for id, lsn := range acked {
		require.Contains(t, rows, fmt.Sprintf("%d:%s", lsn, id))
	}
}
