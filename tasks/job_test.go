package tasks_test

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/tags"
)

// All tasks of a job restart repeatedly, while another goroutine reads how far behind they are.
func TestFailedWhileWatched(t *testing.T) {
	w := newWorld(6, 5000, 2)
	file := filepath.Join(t.TempDir(), "out")
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 1000}
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, file, g), tasks.Options{
		Protocol: "aligned", Parallelism: 2, Groups: 4, CommitInterval: time.Millisecond, Checkpoints: storetest.NewMem(), Logger: quiet,
	})
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for !isDone(job) {
			job.Backlog()
			job.Status()
		}
	})
	for range 5 {
		_, err := job.Fail(t.Context(), 0, 0)
		require.NoError(t, err)
	}
	g.open.Store(true)
	require.NoError(t, job.Wait())
	wg.Wait()
	sameRows(t, w.want, lines(t, file))
}

// A source reads nothing from the log: it has no position there, and is never behind.
func TestSourceHasNoPosition(t *testing.T) {
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), simplePlan(t, serde.Int64), tasks.Options{Parallelism: 1, Groups: 1, Logger: quiet})
	require.NoError(t, err)
	require.NoError(t, job.Wait())
	all := job.Status()
	require.Zero(t, all[0].Position, all[0].Stage)
	require.NotZero(t, all[len(all)-1].Position)
}

// A task that the job does not have: the error says which it has, and the job is not disturbed. After its
// end the error is the same as for any task.
func TestFailOfNoTask(t *testing.T) {
	job, finish := gated(t, tasks.Options{})
	unknown := []struct {
		stage, task int
		say         string
	}{
		{9, 0, `there is no stage 9: the stages are 0 "` + job.Layout().Plan.Stages[0].Name + `", 1 `},
		{-1, 0, `there is no stage -1: the stages are 0 `},
		{2, 7, `stage "by-key", task 7: there is no such task: the stage has had `},
		{2, -1, `stage "by-key", task -1: there is no such task: the stage has had `},
	}
	for _, c := range unknown {
		_, err := job.Fail(t.Context(), c.stage, c.task)
		require.ErrorContains(t, err, c.say)
		_, err = job.TakeOver(t.Context(), c.stage, c.task)
		require.ErrorContains(t, err, c.say)
	}
	finish()
	for _, c := range unknown {
		_, err := job.Fail(t.Context(), c.stage, c.task)
		require.ErrorIs(t, err, tasks.ErrEnded)
	}
}

// A task failure and a savepoint are requested when the job is about to end: either the request
// succeeds, or the error says that the job has ended, and the job ends once.
func TestAskedAtTheEnd(t *testing.T) {
	for range 50 {
		job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), simplePlan(t, serde.Int64), tasks.Options{Parallelism: 1, Groups: 1, Logger: quiet})
		require.NoError(t, err)
		for !isDone(job) {
			_, err := job.Savepoint(t.Context(), "none", false) // there is no store
			require.Error(t, err)
		}
		require.NoError(t, job.Wait())
		_, err = job.Fail(t.Context(), 0, 0)
		require.ErrorIs(t, err, tasks.ErrEnded)
	}
}

// The caller of a savepoint gives up when the sources have stopped for it and the sink has not: the
// job continues to its end.
func TestSavepointGivenUp(t *testing.T) {
	log, store := mem.New(mem.Options{}), storetest.NewMem()
	var items []optest.Timed[int64]
	for i := range int64(2000) {
		items = append(items, optest.At(i, i))
	}
	job := operators.NewJob("given-up")
	g := gate{optest.Items(0, items), new(atomic.Bool), 1000}
	spread := operators.Rebalance(operators.FromSource(job, "keys", g, serde.Int64), "spread")
	stands, resume, rows := make(chan struct{}), make(chan struct{}), 0
	operators.ToSink(spread, "out", operators.FuncSink(func(b *operators.Batch[int64]) error {
		if rows == 0 {
			close(stands)
			<-resume
		}
		rows += b.Len()
		return nil
	}))
	plan, err := job.Plan()
	require.NoError(t, err)
	running, err := tasks.Start(t.Context(), log, plan, tasks.Options{
		Parallelism: 1, Groups: 1, CommitInterval: time.Millisecond, Checkpoints: store, Logger: quiet,
	})
	require.NoError(t, err)
	<-stands
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	saved := make(chan error, 1)
	go func() {
		_, err := running.Savepoint(ctx, "one", false)
		saved <- err
	}()
	require.Eventually(t, func() bool { // the source has stopped
		tail, err := log.Tail(t.Context())
		if err != nil {
			return false
		}
		var m envelope.Marker
		e, ok, err := log.Last(t.Context(), tags.Task(running.Layout().Job, "keys", 0), tail)
		return err == nil && ok && m.Parse(e.Data) == nil && m.Drained > 0
	}, time.Minute, time.Millisecond)
	leave()
	close(resume)
	require.ErrorIs(t, <-saved, context.Canceled)
	g.open.Store(true)
	require.NoError(t, running.Wait())
	require.Equal(t, len(items), rows)
}

// Two savepoints have two numbers, although the clock stands still, at 0: tasks stop for each.
func TestSavepointsWhileTheClockStands(t *testing.T) {
	log, store := mem.New(mem.Options{}), storetest.NewMem()
	var items []optest.Timed[int64]
	for i := range int64(2000) {
		items = append(items, optest.At(i, i))
	}
	job := operators.NewJob("stands")
	g := gate{optest.Items(0, items), new(atomic.Bool), 1000}
	spread := operators.Rebalance(operators.FromSource(job, "keys", g, serde.Int64), "spread")
	operators.ToSink(spread, "out", operators.FuncSink(func(*operators.Batch[int64]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	running, err := tasks.Start(t.Context(), log, plan, tasks.Options{
		Parallelism: 1, Groups: 1, CommitInterval: time.Millisecond, Checkpoints: store, Logger: quiet,
		Clock: func() time.Time { return time.Unix(0, 0) },
	})
	require.NoError(t, err)
	one, err := running.Savepoint(t.Context(), "one", false)
	require.NoError(t, err)
	two, err := running.Savepoint(t.Context(), "two", false)
	require.NoError(t, err)
	require.Positive(t, one.Number)
	require.Greater(t, two.Number, one.Number)
	g.open.Store(true)
	require.NoError(t, running.Wait())
}
