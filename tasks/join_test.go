package tasks_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/tags"
)

func simplePlan(t *testing.T, typ serde.Serde[int64]) *operators.Plan {
	job := operators.NewJob("simple")
	keys := operators.FromSource(job, "keys", optest.Items(0, []optest.Timed[int64]{optest.At[int64](1, 1)}), serde.Int64)
	byKey := operators.KeyBy(keys, "by-key", typ, func(k *int64) int64 { return *k })
	operators.ToSink(operators.Count(byKey), "out", operators.FuncSink(func(*operators.Batch[operators.Change[int64, int64]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan
}

// The newest plan in the log decides who owns what, not what this process would compute, nor what
// etcd says (pitfall T7).
func TestOwnershipIsTheLogs(t *testing.T) {
	log := mem.New(mem.Options{})
	plan := simplePlan(t, serde.Int64)
	spec, err := tasks.Describe(plan, tasks.Options{Parallelism: 2, Groups: 8, Logger: quiet})
	require.NoError(t, err)
	id, err := tasks.Register(t.Context(), log, nil, spec)
	require.NoError(t, err)
	join := func() *tasks.Executor {
		executor, err := tasks.Join(t.Context(), log, spec, id, plan, tasks.Options{Logger: quiet})
		require.NoError(t, err)
		return executor
	}
	require.Equal(t, []int{0, 1, 2, 3}, join().Layout().Owned(1, 0))

	// A plan that moves key group 3 from task 0 to task 1.
	e, ok, err := log.Last(t.Context(), tags.Control(id), 1<<40)
	require.NoError(t, err)
	require.True(t, ok)
	var p envelope.Plan
	require.NoError(t, p.Parse(e.Data))
	p.Number, p.Stages[1].Owners[3] = 2, 1
	p.Moves = []envelope.Move{{Stage: 1, From: 0, To: 1, Groups: []int{3}}}
	w := sharedlog.NewWriter(log, "rescale", sharedlog.Condition{})
	w.Force = true
	_, err = w.Append(sharedlog.Record{Tags: []sharedlog.Tag{tags.Control(id)}, Data: p.Append(nil)}).Wait(t.Context())
	require.NoError(t, err)
	l := join().Layout()
	require.Equal(t, []int{0, 1, 2}, l.Owned(1, 0))
	require.Equal(t, []int{3, 4, 5, 6, 7}, l.Owned(1, 1))
	require.Equal(t, 1, l.Streams[0].Owner[3], "and producers pack by it")

	// So does a process that runs the whole job, which would compute other owners.
	j, err := tasks.Start(t.Context(), log, plan, tasks.Options{Parallelism: 2, Groups: 8, Logger: quiet})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, j.Layout().Owned(1, 0))
	require.NoError(t, j.Wait())
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	e, ok, err = log.Last(t.Context(), tags.Task(id, plan.Stages[1].Name, 1), tail)
	require.NoError(t, err)
	require.True(t, ok)
	var m envelope.Marker
	require.NoError(t, m.Parse(e.Data))
	require.Equal(t, []int{3, 4, 5, 6, 7}, m.Owned)

	p.Stages[1].Owners = p.Stages[1].Owners[1:]
	_, err = w.Append(sharedlog.Record{Tags: []sharedlog.Tag{tags.Control(id)}, Data: p.Append(nil)}).Wait(t.Context())
	require.NoError(t, err)
	_, err = tasks.Join(t.Context(), log, spec, id, plan, tasks.Options{Logger: quiet})
	require.ErrorIs(t, err, tasks.ErrGraph)
}

// Join refuses a program whose plan has another shape, and a job that is not in the log.
func TestJoinRefuses(t *testing.T) {
	log := mem.New(mem.Options{})
	spec, err := tasks.Describe(simplePlan(t, serde.Int64), tasks.Options{Parallelism: 1, Logger: quiet})
	require.NoError(t, err)
	_, err = tasks.Join(t.Context(), log, spec, "simple-1", simplePlan(t, serde.Int64), tasks.Options{Logger: quiet})
	require.ErrorContains(t, err, "not in the log")
	id, err := tasks.Register(t.Context(), log, nil, spec)
	require.NoError(t, err)
	job := operators.NewJob("simple")
	keys := operators.FromSource(job, "keys", optest.Items(0, []optest.Timed[int64]{}), serde.Int64)
	operators.ToSink(keys, "out", operators.FuncSink(func(*operators.Batch[int64]) error { return nil }))
	other, err := job.Plan()
	require.NoError(t, err)
	_, err = tasks.Join(t.Context(), log, spec, id, other, tasks.Options{Logger: quiet})
	require.ErrorIs(t, err, tasks.ErrGraph)
	spec.Format = "0"
	_, err = tasks.Register(t.Context(), log, nil, spec)
	require.ErrorContains(t, err, "format 0")
}

// A job deleted and created again under its name has another id and finds nothing of the old one
// (pitfall T16).
func TestNamesAreNotIDs(t *testing.T) {
	log := mem.New(mem.Options{})
	spec, err := tasks.Describe(simplePlan(t, serde.Int64), tasks.Options{Parallelism: 1, Logger: quiet})
	require.NoError(t, err)
	first, err := tasks.Register(t.Context(), log, nil, spec)
	require.NoError(t, err)
	again, err := tasks.Register(t.Context(), log, nil, spec)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.NoError(t, tasks.Forget(t.Context(), log, "simple", first))
	require.NoError(t, tasks.Forget(t.Context(), log, "simple", first))
	second, err := tasks.Register(t.Context(), log, nil, spec)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
}

// An outside reader sees what the sink sees, whatever crashed in between: committed rows, each
// once, in order.
func TestReadInto(t *testing.T) {
	w := newWorld(5, 20000, 3)
	for _, protocol := range []string{"fused", "marker", "txn"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(9, 9))
			dir := t.TempDir()
			log := open(t, dir)
			file := filepath.Join(dir, "out")
			o := tasks.Options{
				Protocol: protocol, Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, CommitBytes: 4 << 10, Logger: quiet, TrimBytes: -1,
			}
			for crashes := 0; ; crashes++ {
				job, err := tasks.Start(t.Context(), log, w.plan(t, file), o)
				require.NoError(t, err)
				if crashes == 5 {
					require.NoError(t, job.Wait())
					break
				}
				want := rng.Uint64N(200) + 20
				require.Eventually(t, func() bool {
					commits := uint64(0)
					for _, s := range job.Status() {
						commits += s.Commits
					}
					return commits >= want || isDone(job)
				}, time.Minute, time.Millisecond)
				job.Stop()
			}
			sameRows(t, w.want, lines(t, file))
			for _, follow := range []bool{false, true} {
				read := filepath.Join(dir, fmt.Sprint("read", follow))
				require.NoError(t, tasks.ReadInto(t.Context(), log, "counts", w.plan(t, read), "out", follow, nil))
				require.Equal(t, lines(t, file), lines(t, read))
			}
			_, err := tasks.NewReader(t.Context(), log, "counts", "nothing", false)
			require.ErrorContains(t, err, "spread, by-key, out")
			_, err = tasks.NewReader(t.Context(), log, "nothing", "out", false)
			require.ErrorContains(t, err, `no job "nothing"`)
			require.NoError(t, log.Close())
		})
	}
}

// A reader whose stream was trimmed before it started continues where the sink is: the sink has
// everything before that, and nothing comes twice.
func TestReadIntoSkips(t *testing.T) {
	for _, protocol := range []string{"fused", "marker", "txn", "aligned", "aligned-early"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			log := open(t, t.TempDir())
			const n = 50_000
			var items []optest.Timed[int64]
			for i := range int64(n) {
				items = append(items, optest.At(i, i))
			}
			src := pausable{optest.Items(0, items), 3000, new(atomic.Int32), make(chan struct{}), make(chan struct{})}
			planInto := func(sink func(int64)) *operators.Plan {
				job := operators.NewJob("skip")
				spread := operators.Rebalance(operators.FromSource(job, "keys", src, serde.Int64), "spread")
				operators.ToSink(spread, "out", operators.FuncSink(func(b *operators.Batch[int64]) error {
					for _, v := range b.Items {
						sink(v)
					}
					return nil
				}))
				plan, err := job.Plan()
				require.NoError(t, err)
				return plan
			}
			var had [n]atomic.Bool
			plan := planInto(func(v int64) { had[v].Store(true) })
			o := tasks.Options{Protocol: protocol, Parallelism: 2, Groups: 4, CommitInterval: time.Millisecond, CommitBytes: 2 << 10, Lead: 1 << 10, Checkpoints: storetest.NewMem(), Logger: quiet, TrimBytes: -1}
			running, err := tasks.Start(t.Context(), log, plan, o)
			require.NoError(t, err)
			<-src.stopped
			spec, err := tasks.Describe(plan, o)
			require.NoError(t, err)
			trimmer, err := spec.Trimmer(log, running.Layout().Job)
			require.NoError(t, err)
			read := make(map[int64]int)
			reader := planInto(func(v int64) { read[v]++ })
			sinkHas := func() (all []int64) {
				for v := range had {
					if had[v].Load() {
						all = append(all, int64(v))
					}
				}
				return all
			}
			// Most of what the sink has consumed is trimmed.
			require.Eventually(t, func() bool {
				_, err := trimmer.Round(t.Context(), 0)
				require.NoError(t, err)
				clear(read)
				require.NoError(t, tasks.ReadInto(t.Context(), log, "skip", reader, "out", false, func(uint64) error { return nil }))
				return len(sinkHas()) > 2*len(read)+1000
			}, time.Minute, time.Millisecond)
			require.ErrorIs(t, tasks.ReadInto(t.Context(), log, "skip", reader, "out", false, nil), sharedlog.ErrTrimmed)

			refused := errors.New("not now")
			require.ErrorIs(t, tasks.ReadInto(t.Context(), log, "skip", reader, "out", true, func(uint64) error { return refused }), refused)
			clear(read)
			var gone uint64
			var before []int64 // the sink had these when the reader restarted
			require.NoError(t, tasks.ReadInto(t.Context(), log, "skip", reader, "out", true, func(n uint64) error {
				gone = n
				before = sinkHas()
				close(src.resume)
				return nil
			}))
			require.NoError(t, running.Wait())
			require.Less(t, len(read), n, "something was left out")
			require.EqualValues(t, n-len(read), gone)
			for v, times := range read {
				require.Equal(t, 1, times, v)
			}
			for _, v := range before {
				read[v] = 1
			}
			require.Len(t, read, n)
			require.NoError(t, log.Close())
		})
	}
}

func isDone(j *tasks.Job) bool {
	select {
	case <-j.Done():
		return true
	default:
		return false
	}
}

// A task that is asked to stop commits what it has done: its successor repeats nothing.
func TestStopCommits(t *testing.T) {
	log := open(t, t.TempDir())
	var items []optest.Timed[int64]
	for i := range 200_000 {
		items = append(items, optest.At(int64(i), int64(i)))
	}
	src := pausable{optest.Items(0, items), 30, new(atomic.Int32), make(chan struct{}), make(chan struct{})}
	job := operators.NewJob("stop")
	spread := operators.Rebalance(operators.FromSource(job, "keys", src, serde.Int64), "spread")
	operators.ToSink(spread, "out", operators.FuncSink(func(*operators.Batch[int64]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	spec, err := tasks.Describe(plan, tasks.Options{Parallelism: 1, Groups: 1, CommitInterval: time.Minute, Logger: quiet})
	require.NoError(t, err)
	id, err := tasks.Register(t.Context(), log, nil, spec)
	require.NoError(t, err)
	executor, err := tasks.Join(t.Context(), log, spec, id, plan, tasks.Options{Logger: quiet, TrimBytes: -1})
	require.NoError(t, err)
	first, err := executor.Begin(t.Context(), 0, 0, tasks.Attempt{})
	require.NoError(t, err)
	<-src.stopped
	close(src.resume)
	first.Stop()
	<-first.Done()
	if err := first.Err(); err != nil { // nil: it finished before it received the request
		require.True(t, errors.Is(err, tasks.ErrStopped), "%v", err)
	}
	done := first.Status().ItemsIn
	require.Positive(t, done)
	second, err := executor.Begin(t.Context(), 0, 0, tasks.Attempt{})
	require.NoError(t, err)
	<-second.Done()
	require.NoError(t, second.Err())
	require.Equal(t, uint64(len(items)), done+second.Status().ItemsIn, "nothing is read twice")
	require.NoError(t, log.Close())
}
