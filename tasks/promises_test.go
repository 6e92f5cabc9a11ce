package tasks_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
)

func ints(n int) (items []optest.Timed[int64]) {
	for i := range n {
		items = append(items, optest.At(int64(i), int64(i)))
	}
	return items
}

// A task commits when enough of its output is pending, however long its interval is.
func TestCommitByBytes(t *testing.T) {
	for _, protocol := range []string{"fused", "marker", "txn"} {
		t.Run(protocol, func(t *testing.T) {
			job := operators.NewJob("bytes")
			in := operators.FromSource(job, "in", optest.Items(0, ints(50_000)), serde.Int64)
			operators.ToSink(operators.Rebalance(in, "spread"), "out", operators.FuncSink(func(*operators.Batch[int64]) error { return nil }))
			plan, err := job.Plan()
			require.NoError(t, err)
			log := mem.New(mem.Options{})
			running, err := tasks.Start(t.Context(), log, plan, tasks.Options{
				Protocol: protocol, Parallelism: 1, Groups: 4, CommitInterval: time.Hour, CommitBytes: 8 << 10, TrimBytes: -1, Logger: quiet,
			})
			require.NoError(t, err)
			require.NoError(t, running.Wait())
			source := running.Status()[0]
			require.Greater(t, source.BytesOut, uint64(20*8<<10))
			require.GreaterOrEqual(t, source.Groups, source.BytesOut/(32<<10), "of %d bytes", source.BytesOut)
			// Parts of 32 KiB are for what one unit makes.
			layout := running.Layout()
			stream := slices.IndexFunc(layout.Plan.Streams, func(s exec.StreamSpec) bool { return s.Name == "spread" })
			r, err := log.NewReader(sharedlog.ReaderOptions{Tags: layout.Streams[stream].Data, From: sharedlog.First})
			require.NoError(t, err)
			defer r.Close()
			largest := 0
			for {
				b, err := r.TryNext()
				require.NoError(t, err)
				if len(b.Entries) == 0 {
					break
				}
				for _, e := range b.Entries {
					largest = max(largest, len(e.Data))
				}
			}
			require.Greater(t, largest, 4<<10)
			require.Less(t, largest, 16<<10)
		})
	}
}

// A record has the tag of each key group that it has items of, and no other tag: a task that takes
// over a key group reads by its tag.
func TestRecordsHaveTheTagsOfTheirGroups(t *testing.T) {
	job := operators.NewJob("tags")
	in := operators.FromSource(job, "in", optest.Items(0, ints(2_000)), serde.Int64)
	keyed := operators.KeyBy(in, "by-key", serde.Int64, func(n *int64) int64 { return *n % 100 })
	operators.ToSink(operators.Count(keyed), "out", operators.FuncSink(func(*operators.Batch[operators.Change[int64, int64]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	running, err := tasks.Start(t.Context(), log, plan, tasks.Options{Parallelism: 2, Groups: 16, CommitInterval: time.Millisecond, TrimBytes: -1, Logger: quiet})
	require.NoError(t, err)
	require.NoError(t, running.Wait())
	layout := running.Layout()
	stream := slices.IndexFunc(layout.Plan.Streams, func(s exec.StreamSpec) bool { return s.Name == "by-key" })
	data := layout.Streams[stream].Data
	total := 0
	for g, tag := range data {
		r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tag}, From: sharedlog.First})
		require.NoError(t, err)
		for {
			b, err := r.TryNext()
			require.NoError(t, err)
			if len(b.Entries) == 0 {
				break
			}
			for _, e := range b.Entries {
				var s envelope.Sections
				_, err := s.Open(e.Data)
				require.NoError(t, err)
				found := false
				for sec, ok := s.Next(); ok; sec, ok = s.Next() {
					if sec.Group == g {
						found = true
						total += sec.Items
					}
				}
				require.True(t, found, "LSN %d has the tag of key group %d and nothing for it", e.LSN, g)
			}
		}
		require.NoError(t, r.Close())
	}
	require.Equal(t, 2_000, total)
}

// idler is a source of one partition that is Idle until done is set, and then ends.
type idler struct{ done *atomic.Bool }

func (s idler) Partitions() int                              { return 1 }
func (s idler) Open(int) (operators.Partition[int64], error) { return s, nil }
func (s idler) Position(dst []byte) []byte                   { return dst }
func (s idler) Seek([]byte) error                            { return nil }
func (s idler) Close() error                                 { return nil }
func (s idler) Watermark() int64                             { return operators.MinTime }
func (s idler) Read(*operators.Batch[int64], int, int64) (operators.Status, error) {
	if s.done.Load() {
		return operators.Status{State: operators.Ended}, nil
	}
	return operators.Status{State: operators.Idle}, nil
}

// A task all of whose producers are idle is idle itself and delays nothing behind it: windows of
// the other source close while one source is idle two stages before.
func TestIdleGoesThroughStages(t *testing.T) {
	for _, protocol := range []string{"fused", "marker", "txn", "aligned"} {
		t.Run(protocol, func(t *testing.T) {
			var done atomic.Bool
			job := operators.NewJob("idle")
			busy := operators.FromSource[int64](job, "busy", gate{optest.Items(0, ints(5_000)), &done, 4_200}, serde.Int64)
			idle := operators.Rebalance(operators.FromSource[int64](job, "idle", idler{&done}, serde.Int64), "between")
			both := operators.KeyBy(operators.Merge("both", operators.Rebalance(busy, "busy-between"), idle), "k", serde.Bool, func(*int64) bool { return true })
			closed := 0
			operators.ToSink(operators.CountWindows(both, operators.Tumbling(time.Second)), "out",
				operators.FuncSink(func(b *operators.Batch[operators.KV[bool, operators.Windowed[int64]]]) error {
					for i := range b.Items {
						require.EqualValues(t, 1_000, b.Items[i].Value.Value)
					}
					if closed += b.Len(); closed == 4 { // the busy source alone closes this many; the last window closes when both have ended
						done.Store(true)
					}
					return nil
				}))
			plan, err := job.Plan()
			require.NoError(t, err)
			require.NoError(t, tasks.Run(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{
				Protocol: protocol, Parallelism: 2, Groups: 4, CommitInterval: time.Millisecond, Checkpoints: storetest.NewMem(), Logger: quiet,
			}))
			require.Equal(t, 5, closed)
		})
	}
}

// counted reports whether the stage by-key has committed items.
func counted(job *tasks.Job) bool {
	return slices.ContainsFunc(job.Status(), func(s tasks.Status) bool { return s.Stage == "by-key" && s.ItemsIn > 0 && s.Commits > 1 })
}

// A checkpoint store that is ahead of the log belongs to another log: the job fails and restores
// nothing from it.
func TestStoreAheadOfTheLog(t *testing.T) {
	job := operators.NewJob("ahead")
	in := operators.FromSource(job, "in", optest.Items(0, ints(10)), serde.Int64)
	never := operators.FromSource[int64](job, "never", idler{new(atomic.Bool)}, serde.Int64) // or the job ends
	counts := operators.Count(operators.KeyBy(operators.Merge("all", in, never), "by-key", serde.Int64, func(n *int64) int64 { return *n }))
	operators.ToSink(counts, "out", operators.FuncSink(func(*operators.Batch[operators.Change[int64, int64]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	log, store := mem.New(mem.Options{}), storetest.NewMem()
	o := tasks.Options{Parallelism: 1, Groups: 4, Checkpoints: store, Logger: quiet}
	spec, err := tasks.Describe(plan, o)
	require.NoError(t, err)
	id, err := tasks.Register(t.Context(), log, nil, spec)
	require.NoError(t, err)
	g := checkpoint.Group{Job: id, Stage: "by-key", Group: 2}
	_, err = store.Begin(t.Context(), g, 1)
	require.NoError(t, err)
	require.NoError(t, store.Write(t.Context(), []checkpoint.Write{{Group: g, Token: 1, To: 1 << 30}}))
	// A task that has committed before reads the store.
	first, err := tasks.Start(t.Context(), log, plan, tasks.Options{Parallelism: 1, Groups: 4, Logger: quiet})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return counted(first) }, time.Minute, time.Millisecond)
	first.Stop()
	err = tasks.Run(t.Context(), log, plan, o)
	require.ErrorContains(t, err, "it is the store of another log")
}

// A function that fails at another item in each life of its task is not retried for ever.
func TestFailsElsewhereEachTime(t *testing.T) {
	for _, onError := range []string{tasks.OnErrorSkip, tasks.OnErrorDeadLetter} {
		var lives atomic.Int64
		job := operators.NewJob("elsewhere")
		in := operators.KeyBy(operators.FromSource(job, "in", optest.Items(0, ints(1_000)), serde.Int64), "k", serde.Bool, func(*int64) bool { return true })
		rows := operators.Process(in, "sum", func(c *operators.Context[bool, int64]) operators.Handler[int64] {
			sum := operators.NewValue(c, "sum", serde.Int64)
			life := lives.Add(1)
			return operators.Handler[int64]{Item: func(n *int64) {
				if *n == 900-life*7 {
					panic("not again here")
				}
				*sum.Upsert() += *n
			}}
		})
		operators.ToSink(rows, "out", operators.FuncSink(func(*operators.Batch[operators.KV[bool, int64]]) error { return nil }))
		plan, err := job.Plan()
		require.NoError(t, err)
		err = tasks.Run(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{
			OnError: onError, Parallelism: 1, Groups: 1, CommitInterval: time.Hour, Logger: quiet,
		})
		require.ErrorContains(t, err, "not again here")
		require.Less(t, lives.Load(), int64(50))
	}
}
