package host_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
	"tailrace.dev/tailrace/sharedlog/logtest"
)

// Shards are replaced when they reach a size, under writers that do not pause: no append fails, none is
// lost, and readers see all of them in order. A shard that is sealed before it has the size had a node
// that did not answer, because the machine was busy. That no append is in flight at a seal holds where
// appends take less than half a second: internal/sim/servers tests it, in virtual time.
func TestShardsAreReplacedAtASize(t *testing.T) {
	t.Parallel()
	const size = 200 << 10
	c := newLocalAs(t, 1, 3, func(c *local) { c.shardBytes = size })
	c.primaries(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l, closeLog, err := host.OpenLog(ctx, transport.Options{Cluster: "test"}, client.Options{Sequencers: c.sequencers, Logger: quiet})
	require.NoError(t, err)
	defer func() { require.NoError(t, closeLog()) }()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var longest time.Duration
	acked := 0
	data := make([]byte, 1<<10)
	for i := range 6 {
		wg.Go(func() {
			w := sharedlog.NewWriter(l, fmt.Sprint("w", i), sharedlog.Condition{})
			type begun struct {
				p  *sharedlog.Pending
				at time.Time
			}
			var on []begun // four at a time
			for n := 0; ; n++ {
				select {
				case <-stop:
					n = -1
				default:
					on = append(on, begun{w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: data}), time.Now()})
				}
				if n == -1 && len(on) == 0 {
					return
				}
				if len(on) < 4 && n >= 0 {
					continue
				}
				_, err := on[0].p.Wait(ctx)
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
					return
				}
				mu.Lock()
				acked++
				longest = max(longest, time.Since(on[0].at))
				mu.Unlock()
				on = on[1:]
			}
		})
	}
	var grown, short []uint32 // sealed at the size; sealed before it
	require.Eventually(t, func() bool {
		grown, short = nil, nil
		for _, sh := range c.status(t).GetShards() {
			switch {
			case !sh.GetSealed():
			case sh.GetLength() >= size/1200:
				grown = append(grown, sh.GetId())
			default:
				short = append(short, sh.GetId())
			}
		}
		return len(grown) >= 3
	}, 5*time.Minute, 20*time.Millisecond)
	close(stop)
	wg.Wait()
	t.Logf("%d appends; shards %v were sealed at the size, %v before it; the longest append took %v", acked, grown, short, longest)
	tail, err := l.Tail(ctx)
	require.NoError(t, err)
	rows, err := logtest.Read(ctx, l, 1, tail, "x")
	require.NoError(t, err)
	require.Len(t, rows, acked)
}
