package tasks_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
)

// A sink stands still while the source, which waits for nobody, writes forty times
// the log's memory: the process does not grow, and when the sink goes on it gets
// every item once, in order.
func TestStoppedSink(t *testing.T) {
	const n, budget = 8_000_000, 1 << 20
	log, err := embedded.Open(t.TempDir(), embedded.Options{CacheBytes: budget, ReaderBytes: budget, QueueBytes: budget, SegmentBytes: 4 << 20, Logger: quiet})
	require.NoError(t, err)
	job := operators.NewJob("stopped")
	spread := operators.Rebalance(operators.FromSource(job, "numbers", numbers(n), serde.Int64), "spread")
	goOn, next := make(chan struct{}), int64(0)
	operators.ToSink(spread, "out", operators.FuncSink(func(b *operators.Batch[int64]) error {
		<-goOn
		for _, v := range b.Items {
			if v != next {
				require.Equal(t, next, v)
			}
			next++
		}
		return nil
	}))
	plan, err := job.Plan()
	require.NoError(t, err)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	running, err := tasks.Start(t.Context(), log, plan, tasks.Options{Parallelism: 1, Groups: 1, CommitBytes: 64 << 10, Logger: quiet})
	require.NoError(t, err)
	until(t, running, func(s tasks.Status) bool { return s.Stage != "numbers" || s.ItemsIn == n })
	require.Greater(t, log.Stats().Written, uint64(40*budget))
	require.LessOrEqual(t, log.Stats().Queued, uint64(2*budget))
	require.Less(t, heap(), before+16*budget)
	close(goOn)
	until(t, running, func(s tasks.Status) bool { return s.Stage != "out" || s.ItemsIn == n })
	stop(t, running)
	require.EqualValues(t, n, next)
	require.NoError(t, log.Close())
}
