package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
	"tailrace.dev/tailrace/sharedlog/logtest"
)

// counter counts what a client says while it resolves appends that met a seal.
type counter struct {
	slog.Handler
	resolved *atomic.Int64
}

func (c counter) Enabled(context.Context, slog.Level) bool { return true }

func (c counter) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "resolving") {
		c.resolved.Add(1)
	}
	return nil
}

// Shards are replaced when they have grown to a size, under writers that do not pause:
// no append fails, or meets a seal; none is lost, and readers see all of them in order.
func TestShardsAreReplacedAtASize(t *testing.T) {
	t.Parallel()
	const size = 200 << 10
	c := newLocalAs(t, 1, 3, func(c *local) { c.shardBytes = size })
	c.primaries(t, 3)
	var resolved atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l, closeLog, err := host.OpenLog(ctx, transport.Options{Cluster: "test"}, client.Options{
		Sequencers: c.sequencers, Logger: slog.New(counter{quiet.Handler(), &resolved}),
	})
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
	sealed := 0
	require.Eventually(t, func() bool {
		sealed = 0
		for _, sh := range c.status(t).GetShards() {
			if sh.GetSealed() {
				sealed++
			}
		}
		return sealed >= 3
	}, time.Minute, 20*time.Millisecond)
	close(stop)
	wg.Wait()
	t.Logf("%d appends over %d seals; the longest took %v; %d times a seal met appends", acked, sealed, longest, resolved.Load())
	require.Zero(t, resolved.Load(), "writers leave a shard before it is sealed")
	for _, sh := range c.status(t).GetShards() {
		if sh.GetSealed() {
			require.GreaterOrEqual(t, sh.GetLength(), uint64(size/(2<<10)), "shard %d", sh.GetId())
		}
	}
	tail, err := l.Tail(ctx)
	require.NoError(t, err)
	rows, err := logtest.Read(ctx, l, 1, tail, "x")
	require.NoError(t, err)
	require.Len(t, rows, acked)
}
