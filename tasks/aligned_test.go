package tasks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/tags"
)

// newestCheckpoint returns the number of the job's newest complete checkpoint.
func newestCheckpoint(t *testing.T, log sharedlog.Log, job *tasks.Job) uint64 {
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	e, ok, err := log.Last(t.Context(), tags.Checkpoints(job.Layout().Job), tail)
	if errors.Is(err, sharedlog.ErrTrimmed) {
		return newestCheckpoint(t, log, job) // there were two newer ones in between
	}
	require.NoError(t, err)
	var c envelope.Checkpoint
	if ok {
		require.NoError(t, c.Parse(e.Data))
	}
	return c.Number
}

// A job whose tasks commit together crashes after a few checkpoints, either as a process does (the
// log is opened anew) or by the failure of one of its tasks: the rows are those of an undisturbed
// run. Under aligned-early, which shows rows at once, there may be too many rows, but none is
// missing.
func TestCheckpointsOverCrashes(t *testing.T) {
	w := newWorld(2, 150_000, 3)
	for _, protocol := range []string{"aligned", "aligned-early"} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", protocol, seed), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, 3))
				dir := t.TempDir()
				file := filepath.Join(dir, "out")
				o := tasks.Options{
					Protocol: protocol, Parallelism: 2, Groups: 8,
					CommitInterval: time.Millisecond, CommitBytes: 4 << 10, Lead: 4 << 10, Logger: quiet,
					TrimBytes: 1, TrimInterval: time.Millisecond, Checkpoints: storetest.NewMem(),
				}
				crashes := 0
				for done := false; !done; {
					log, err := embedded.Open(dir, embedded.Options{FsyncInterval: time.Millisecond, SegmentBytes: 64 << 10, CacheBytes: 128 << 10, Logger: quiet})
					require.NoError(t, err)
					job, err := tasks.Start(t.Context(), log, w.plan(t, file), o)
					require.NoError(t, err)
					look := time.NewTicker(time.Millisecond)
					enough := newestCheckpoint(t, log, job) + rng.Uint64N(6)
					for alive := true; alive; {
						select {
						case <-look.C:
							if newestCheckpoint(t, log, job) < enough || crashes >= 12 {
								continue
							}
							crashes++
							if alive = rng.IntN(2) > 0; !alive {
								job.Stop()
								break
							}
							// Any task but the sink, whose failure restarts no other task.
							_, err := job.Fail(t.Context(), rng.IntN(len(job.Layout().Stages)-1), 0)
							if err != nil {
								require.ErrorIs(t, err, tasks.ErrEnded) // meanwhile
							}
							enough += rng.Uint64N(6)
						case <-job.Done():
							alive = false
						}
					}
					if done = job.Wait() == nil; !done {
						require.ErrorIs(t, job.Wait(), context.Canceled)
					} else { // work that was repeated counts once
						require.Equal(t, w.events(), items(job, "keys"))
					}
					if done && protocol == "aligned" {
						require.Equal(t, len(w.want), items(job, "out"))
					}
					require.NoError(t, log.Close())
				}
				require.NotZero(t, crashes)
				t.Logf("%d crashes", crashes)
				rows := lines(t, file)
				if protocol == "aligned-early" {
					rows = slices.Compact(rows)
				}
				sameRows(t, w.want, rows)

				// Run again, the job ends at once and leaves the file as it is (T17).
				before, err := os.ReadFile(file)
				require.NoError(t, err)
				log := open(t, dir)
				tail, err := log.Tail(t.Context())
				require.NoError(t, err)
				require.NoError(t, tasks.Run(t.Context(), log, w.plan(t, file), o))
				after, err := os.ReadFile(file)
				require.NoError(t, err)
				require.True(t, bytes.Equal(before, after))
				now, err := log.Tail(t.Context())
				require.NoError(t, err)
				require.Equal(t, tail, now)
				require.NoError(t, log.Close())
			})
		}
	}
}

// slow is a source whose partitions each have at most perMS items per ms.
type slow struct {
	operators.Source[int64]
	perMS int
}

func (s slow) Open(i int) (operators.Partition[int64], error) {
	p, err := s.Source.Open(i)
	return &slowed{Partition: p, perMS: s.perMS}, err
}

type slowed struct {
	operators.Partition[int64]
	perMS, left int
	now         int64
}

func (p *slowed) Read(b *operators.Batch[int64], most int, now int64) (operators.Status, error) {
	if now > p.now {
		p.now, p.left = now, p.perMS
	}
	if p.left <= 0 {
		return operators.Status{State: operators.Waiting, Due: p.now + 1}, nil
	}
	before := b.Len()
	st, err := p.Partition.Read(b, most, now)
	p.left -= b.Len() - before
	return st, err
}

// The tasks of a job run in three processes, as a task manager would assign them. Now and then a
// process or a single task dies; then all tasks are assigned anew. Tasks of the old attempt that
// are still alive continue until they learn that it is over, even beside their successors in one
// process. The rows are those of an undisturbed run.
func TestAttemptsOverProcesses(t *testing.T) {
	w := newWorld(5, 60_000, 3)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 5))
			log, file := mem.New(mem.Options{}), filepath.Join(t.TempDir(), "out")
			o := tasks.Options{Protocol: "aligned", Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, CommitBytes: 4 << 10, Logger: quiet}
			plan := func() *operators.Plan { return counts(t, file, slow{optest.Items(delay, w.parts...), 40}) }
			spec, err := tasks.Describe(plan(), o)
			require.NoError(t, err)
			id, err := tasks.Register(t.Context(), log, nil, spec)
			require.NoError(t, err)
			trimmer, err := spec.Trimmer(log, id)
			require.NoError(t, err)
			var executors []*tasks.Executor
			store := storetest.NewMem()
			for range 3 {
				executor, err := tasks.Join(t.Context(), log, spec, id, plan(), tasks.Options{Logger: quiet, TrimBytes: -1, Checkpoints: store})
				require.NoError(t, err)
				executors = append(executors, executor)
			}
			numbers, err := spec.Tasks()
			require.NoError(t, err)
			last := len(numbers) - 1
			require.False(t, spec.Together(last))
			sink, err := executors[0].Begin(t.Context(), last, 0, tasks.Attempt{})
			require.NoError(t, err)

			completed := func() uint64 {
				tail, err := log.Tail(t.Context())
				require.NoError(t, err)
				e, ok, err := log.Last(t.Context(), tags.Checkpoints(id), tail)
				require.NoError(t, err)
				var c envelope.Checkpoint
				if ok {
					require.NoError(t, c.Parse(e.Data))
				}
				return c.Number
			}
			var before []*tasks.Handle
			attempts := 0
			for done := false; !done; {
				attempts++
				processes := make([]context.CancelFunc, 3)
				in := make([]context.Context, 3)
				for i := range processes {
					in[i], processes[i] = context.WithCancel(t.Context())
					defer processes[i]()
				}
				var now []*tasks.Handle
				for s := range last {
					for i := range numbers[s] {
						at := rng.IntN(3)
						r, err := executors[at].Begin(in[at], s, i, tasks.Attempt{Number: uint64(attempts), Nonce: 1})
						require.NoError(t, err)
						now = append(now, r)
					}
				}
				for _, r := range before { // the zombies; one that appends nothing does not learn of it
					r.Stop()
					<-r.Done()
					if err := r.Err(); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, tasks.ErrStopped) {
						require.ErrorIs(t, err, tasks.ErrFenced)
					}
				}
				before = now
				enough := completed() + rng.Uint64N(3)
				if attempts > 12 {
					enough = 1 << 60
				}
				require.Eventually(t, func() bool {
					done = true
					for _, r := range now {
						select {
						case <-r.Done():
							require.NoError(t, r.Err())
						default:
							done = false
						}
					}
					_, err := trimmer.Round(t.Context(), 0)
					require.NoError(t, err)
					return done || completed() >= enough
				}, time.Minute, time.Millisecond)
				processes[rng.IntN(3)]()
			}
			<-sink.Done()
			require.NoError(t, sink.Err())
			require.Greater(t, attempts, 1)
			t.Logf("%d attempts, %d checkpoints", attempts, completed())
			sameRows(t, w.want, lines(t, file))

			// Restarted, all tasks end at once, including the coordinator's, which has nothing to
			// do.
			for s := range last {
				for i := range numbers[s] {
					r, err := executors[i].Begin(t.Context(), s, i, tasks.Attempt{Number: uint64(attempts) + 1, Nonce: 1})
					require.NoError(t, err)
					<-r.Done()
					require.NoError(t, r.Err())
				}
			}
			_, err = executors[0].Begin(t.Context(), 0, 0, tasks.Attempt{})
			require.ErrorContains(t, err, "start together")
		})
	}
}

// While the store is unavailable no checkpoint completes: processing continues to the end of the
// input, and no row is visible that a failure could revoke. Under aligned-early rows are visible.
func TestRowsWaitForTheStore(t *testing.T) {
	w := newWorld(3, 20000, 2)
	for _, protocol := range []string{"aligned", "aligned-early"} {
		t.Run(protocol, func(t *testing.T) {
			log, store := mem.New(mem.Options{}), storetest.NewMem()
			file := filepath.Join(t.TempDir(), "out")
			begun := false
			// Some input is left when the store becomes unavailable.
			g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 1000}
			job, err := tasks.Start(t.Context(), log, counts(t, file, g), tasks.Options{
				Protocol: protocol, Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Lead: 1 << 10, Checkpoints: store, Logger: quiet,
			})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				begun = begun || newestCheckpoint(t, log, job) > 0
				return begun
			}, time.Minute, time.Millisecond)
			store.Down(errors.New("the store is away"))
			g.open.Store(true)
			require.Eventually(t, func() bool {
				for _, s := range job.Status() {
					if s.Stage != "out" && s.Watermark != operators.MaxTime {
						return false
					}
				}
				return true
			}, time.Minute, time.Millisecond)
			if protocol == "aligned" {
				require.NotSubset(t, lines(t, file), w.want[:], "rows of a checkpoint that is not complete")
			} else {
				require.Eventually(t, func() bool { return slices.Equal(w.want, lines(t, file)) }, time.Minute, time.Millisecond)
			}
			store.Down(nil)
			require.NoError(t, job.Wait())
			sameRows(t, w.want, lines(t, file))
		})
	}
}

// A store of another job, or one that lost what it acknowledged, is an error: state would be
// missing.
func TestOtherStoreIsRefused(t *testing.T) {
	w := newWorld(4, 100_000, 1)
	log, store := mem.New(mem.Options{}), storetest.NewMem()
	file := filepath.Join(t.TempDir(), "out")
	o := tasks.Options{Protocol: "aligned", Parallelism: 1, Groups: 4, CommitInterval: time.Millisecond, Lead: 1 << 10, Logger: quiet}
	err := tasks.Run(t.Context(), log, w.plan(t, file), o)
	require.ErrorIs(t, err, tasks.ErrNoStore)
	o.Checkpoints = store
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 1000} // it does not end before it is stopped
	job, err := tasks.Start(t.Context(), log, counts(t, file, g), o)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return newestCheckpoint(t, log, job) > 0 }, time.Minute, time.Millisecond)
	job.Stop()
	o.Checkpoints = storetest.NewMem()
	err = tasks.Run(t.Context(), log, w.plan(t, file), o)
	require.ErrorIs(t, err, checkpoint.ErrOther)
	o.Checkpoints = store
	require.NoError(t, tasks.Run(t.Context(), log, w.plan(t, file), o))
	sameRows(t, w.want, lines(t, file))
}

// A stage whose output no stage reads participates too.
func TestTogetherWithoutOutputs(t *testing.T) {
	job := operators.NewJob("dead-end")
	keys := operators.FromSource(job, "keys", optest.Items(0, []optest.Timed[int64]{optest.At[int64](1, 1), optest.At[int64](2, 1)}), serde.Int64)
	operators.Count(operators.KeyBy(keys, "by-key", serde.Int64, func(k *int64) int64 { return *k }))
	operators.ToSink(operators.Rebalance(keys, "spread"), "out", operators.FuncSink(func(*operators.Batch[int64]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	running, err := tasks.Start(t.Context(), log, plan, tasks.Options{
		Protocol: "aligned", Parallelism: 2, Groups: 4, CommitInterval: time.Millisecond, Checkpoints: storetest.NewMem(), Logger: quiet,
	})
	require.NoError(t, err)
	require.NoError(t, running.Wait())
	require.NotZero(t, newestCheckpoint(t, log, running))
}

// A single task of such a job cannot be started alone.
func TestTasksBeginTogether(t *testing.T) {
	w := newWorld(4, 100, 1)
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), w.plan(t, filepath.Join(t.TempDir(), "out")), tasks.Options{
		Protocol: "aligned", Parallelism: 1, Groups: 1, Checkpoints: storetest.NewMem(), Logger: quiet,
	})
	require.NoError(t, err)
	defer job.Stop()
	_, err = job.TakeOver(t.Context(), 0, 0)
	require.ErrorContains(t, err, "start together")
}

// Options that it does not support are refused with the reason.
func TestTogetherIsRefused(t *testing.T) {
	plan := simplePlan(t, serde.Int64)
	o := tasks.Options{Protocol: "aligned", Parallelism: 2, Groups: 8, Logger: quiet}
	spec, err := tasks.Describe(plan, o)
	require.NoError(t, err)
	require.ErrorContains(t, spec.Savable(), "logs no state changes")
	o.Standbys = 1
	_, err = tasks.Describe(plan, o)
	require.ErrorContains(t, err, "no change log that one could follow")
}

// A job is stopped with input in hand (SIGSTOP), a second process takes it over and ends it, and
// then the first resumes (SIGCONT). Its data, barriers and checkpoints are refused: a reader sees
// each item once. Without the condition it sees some twice.
func TestZombieAttempt(t *testing.T) {
	for _, c := range []struct {
		name   string
		log    sharedlog.Log
		fenced bool
	}{
		{"conditional", mem.New(mem.Options{}), true},
		{"without the condition", unconditional{mem.New(mem.Options{})}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var items []optest.Timed[int64]
			for i := range int64(200) {
				items = append(items, optest.At(i, i))
			}
			src := pausable{optest.Items(0, items), 30, new(atomic.Int32), make(chan struct{}), make(chan struct{})}
			job := operators.NewJob("zombie")
			spread := operators.Rebalance(operators.FromSource(job, "keys", src, serde.Int64), "spread")
			operators.ToSink(spread, "out", operators.FuncSink(func(*operators.Batch[int64]) error { return nil }))
			plan, err := job.Plan()
			require.NoError(t, err)
			o := tasks.Options{Protocol: "aligned", Parallelism: 1, Groups: 1, CommitInterval: time.Minute, FlushInterval: time.Minute, Logger: quiet}
			zombie, err := tasks.Start(t.Context(), c.log, plan, o)
			require.NoError(t, err)
			<-src.stopped
			// The sink is not part of the attempt: if this process's sink started after the
			// other's, it would replace it.
			require.Eventually(t, func() bool {
				for _, s := range zombie.Status() {
					if s.Instance == 0 {
						return false
					}
				}
				return true
			}, time.Minute, time.Millisecond)
			o.CommitInterval = time.Millisecond
			require.NoError(t, tasks.Run(t.Context(), c.log, plan, o))
			close(src.resume)
			if c.fenced {
				require.ErrorIs(t, zombie.Wait(), tasks.ErrFenced)
			} else {
				require.Eventually(t, func() bool {
					return itemsOn(t, c.log, zombie.Layout().Streams[0].Data) == 400
				}, time.Minute, time.Millisecond, "the zombie's data has taken effect")
				zombie.Stop()
				return
			}
			r, err := tasks.NewReader(t.Context(), c.log, "zombie", plan.Streams[0].Name, false)
			require.NoError(t, err)
			defer r.Close()
			count := 0
			for {
				ss, err := r.Next(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				for _, s := range ss {
					count += s.Items
				}
			}
			require.Equal(t, 200, count)
			require.Equal(t, 200, itemsOn(t, c.log, zombie.Layout().Streams[0].Data))
		})
	}
}
