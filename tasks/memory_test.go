package tasks_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
)

// weighed records the size of the largest appended group. It calls before, if it is set, ahead of
// each append.
type weighed struct {
	sharedlog.Log
	mu     sync.Mutex
	most   int
	before atomic.Pointer[func()]
}

func (w *weighed) Append(g sharedlog.Group) *sharedlog.Pending {
	n := 0
	for _, r := range g.Records {
		n += len(r.Data)
	}
	w.mu.Lock()
	w.most = max(w.most, n)
	w.mu.Unlock()
	if f := w.before.Load(); f != nil {
		(*f)()
	}
	return w.Log.Append(g)
}

// A marker that covers far more records than a commit may hold makes no group that the log would
// refuse: their outputs are appended in pieces.
func TestGroupsAreBounded(t *testing.T) {
	for _, protocol := range []string{"marker", "fused", "txn", "unsafe"} {
		t.Run(protocol, func(t *testing.T) {
			const n, limit = 1_000_000, 64 << 10
			log := &weighed{Log: mem.New(mem.Options{})}
			job := operators.NewJob("bounded")
			spread := operators.Rebalance(operators.FromSource(job, "numbers", numbers(n), serde.Int64), "spread")
			again := operators.Rebalance(operators.Filter(spread, func(*int64) bool { return true }), "again")
			sum := int64(0)
			operators.ToSink(again, "out", operators.FuncSink(func(b *operators.Batch[int64]) error {
				for _, v := range b.Items {
					sum += v
				}
				return nil
			}))
			plan, err := job.Plan()
			require.NoError(t, err)
			running, err := tasks.Start(t.Context(), log, plan, tasks.Options{
				Protocol: protocol, Parallelism: 1, Groups: 1, CommitBytes: limit, CommitInterval: time.Second, FlushInterval: time.Second, Logger: quiet,
			})
			require.NoError(t, err)
			until(t, running, func(s tasks.Status) bool { return s.Stage != "out" || s.ItemsIn == n })
			stop(t, running)
			require.EqualValues(t, int64(n)*(n-1)/2, sum)
			require.Less(t, log.most, 8*limit)
		})
	}
}

// finite is the numbers below n, all at one event time.
func finite(n int64) operators.Source[int64] {
	var items []optest.Timed[int64]
	for i := range n {
		items = append(items, optest.At(0, i))
	}
	return optest.Items(0, items)
}

// One watermark closes a hundred thousand windows, each with a row: the commits stay small, and a
// crash between two of them repeats and loses no row (pitfall T14).
func TestOneWatermarkManyCommits(t *testing.T) {
	for _, protocol := range []string{"fused", "marker", "txn"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			const n, limit = 100_000, 4 << 10
			dir := t.TempDir()
			file := filepath.Join(dir, "out")
			log := &weighed{Log: mem.New(mem.Options{})}
			var want []string
			for i := range n {
				want = append(want, fmt.Sprintf("%d 1", i))
			}
			slices.Sort(want)
			plan := func() *operators.Plan {
				job := operators.NewJob("close")
				byKey := operators.KeyBy(operators.FromSource(job, "numbers", finite(n), serde.Int64), "by-key", serde.Int64, func(k *int64) int64 { return *k })
				operators.ToSink(operators.CountWindows(byKey, operators.Tumbling(24*time.Hour)), "out",
					operators.FileSink(file, func(dst []byte, c *operators.KV[int64, operators.Windowed[int64]]) []byte {
						return fmt.Appendf(dst, "%d %d\n", c.Key, c.Value.Value)
					}, false))
				plan, err := job.Plan()
				require.NoError(t, err)
				return plan
			}
			o := tasks.Options{Protocol: protocol, Parallelism: 1, Groups: 4, CommitBytes: limit, CommitInterval: 2 * time.Millisecond, Logger: quiet}
			crashes := 0
			for done := false; !done; {
				running, err := tasks.Start(t.Context(), log, plan(), o)
				require.NoError(t, err)
				if crashes == 3 {
					require.NoError(t, running.Wait())
					break
				}
				// In the middle of the closing, where the log holds the tasks up.
				closing := make(chan struct{})
				released := make(chan struct{})
				var once sync.Once
				hold := func() {
					for _, s := range running.Status() {
						if s.Stage == "by-key" && s.ItemsOut >= 1000 {
							once.Do(func() { close(closing) })
							<-released
						}
					}
				}
				log.before.Store(&hold)
				select {
				case <-closing:
				case <-running.Done():
				}
				close(released)
				running.Stop()
				log.before.Store(nil)
				if done = running.Wait() == nil; !done {
					crashes++
				}
			}
			require.NotZero(t, crashes)
			sameRows(t, want, lines(t, file))
			// Under marker and txn, everything that a producer's commit releases is input of one
			// commit.
			require.Less(t, log.most, map[string]int{"fused": 8, "marker": 24, "txn": 24}[protocol]*limit)
		})
	}
}

// State that changes without any output, for longer than the commit interval, makes no group that
// the log would refuse.
func TestChangesAreBounded(t *testing.T) {
	const n, limit = 200_000, 16 << 10
	log := &weighed{Log: mem.New(mem.Options{})}
	job := operators.NewJob("silent")
	byKey := operators.KeyBy(operators.FromSource(job, "numbers", finite(n), serde.Int64), "by-key", serde.Int64, func(k *int64) int64 { return *k % 50_000 })
	rows := 0
	silent := operators.Filter(operators.Count(byKey), func(*operators.Change[int64, int64]) bool { return false })
	operators.ToSink(silent, "out", operators.FuncSink(func(*operators.Batch[operators.Change[int64, int64]]) error {
		rows++
		return nil
	}))
	plan, err := job.Plan()
	require.NoError(t, err)
	require.NoError(t, tasks.Run(t.Context(), log, plan, tasks.Options{
		Parallelism: 1, Groups: 4, CommitBytes: limit, CommitInterval: time.Hour, FlushInterval: time.Hour, Logger: quiet,
	}))
	require.Zero(t, rows)
	require.Less(t, log.most, 8*limit)
}

// A sink stops while the source, which waits for nothing, writes forty times the log's memory: the
// process does not grow, and when the sink resumes it receives every item once, in order.
func TestStoppedSink(t *testing.T) {
	const n, budget = 8_000_000, 1 << 20
	log, err := embedded.Open(t.TempDir(), embedded.Options{CacheBytes: budget, ReaderBytes: budget, QueueBytes: budget, SegmentBytes: 4 << 20, Logger: quiet})
	require.NoError(t, err)
	job := operators.NewJob("stopped")
	spread := operators.Rebalance(operators.FromSource(job, "numbers", numbers(n), serde.Int64), "spread")
	resume, next := make(chan struct{}), int64(0)
	operators.ToSink(spread, "out", operators.FuncSink(func(b *operators.Batch[int64]) error {
		<-resume
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
	// What was read ahead may still be on its way to the log.
	require.Eventually(t, func() bool { return heap() < before+16*budget }, time.Minute, 10*time.Millisecond)
	close(resume)
	until(t, running, func(s tasks.Status) bool { return s.Stage != "out" || s.ItemsIn == n })
	stop(t, running)
	require.EqualValues(t, n, next)
	require.NoError(t, log.Close())
}
