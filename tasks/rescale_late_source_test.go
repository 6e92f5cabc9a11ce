package tasks_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/observe"
	logrecords "tailrace.dev/tailrace/tasks/records"
)

// A task of a source starts after another stage has been rescaled, and reads its partition: the plan that has made it a task is not
// trimmed before.
func TestRescaledBeforeASourceStarts(t *testing.T) {
	w := newWorld(7, 20_000, 2)
	file := filepath.Join(t.TempDir(), "out")
	release := make(chan struct{})
	o := tasks.Options{Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet}
	o.Observer = func(e observe.Event) {
		if e.Step == observe.RecoveryFenced && e.Stage == "keys" && e.Task == 1 {
			<-release
		}
	}
	plan := counts(t, file, optest.Items(delay, w.parts...))
	spec, err := tasks.Describe(plan, o)
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	job, err := tasks.Start(t.Context(), log, plan, o)
	require.NoError(t, err)
	trimmer, err := spec.Trimmer(log, job.Layout().Job)
	require.NoError(t, err)
	for n := 3; n < 5; n++ {
		_, err := job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: n})
		require.NoError(t, err)
		_, err = trimmer.Round(t.Context(), 0)
		require.NoError(t, err)
	}
	close(release)
	require.NoError(t, job.Wait())
	sameRows(t, w.want, lines(t, file))
}

// A task that has left its stage is started once more by the next process, as the newest plan names it. When it looks for that plan, others
// have followed, and the plan is trimmed: it ends, and the job does not fail.
func TestLeftTaskStartsLate(t *testing.T) {
	w := newWorld(9, 20_000, 2)
	file := filepath.Join(t.TempDir(), "out")
	release := make(chan struct{})
	o := tasks.Options{Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet}
	log := mem.New(mem.Options{})
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
	plan := counts(t, file, g)
	spec, err := tasks.Describe(plan, o)
	require.NoError(t, err)
	job, err := tasks.Start(t.Context(), log, plan, o)
	require.NoError(t, err)
	_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 1})
	require.NoError(t, err)
	job.Stop()

	o.Observer = func(e observe.Event) {
		if e.Step == observe.RecoveryFenced && e.Stage == "by-key" && e.Task == 1 {
			<-release
		}
	}
	job, err = tasks.Start(t.Context(), log, plan, o)
	require.NoError(t, err)
	_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "spread", Tasks: 3})
	require.NoError(t, err)
	trimmer, err := spec.Trimmer(log, job.Layout().Job)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := trimmer.Round(t.Context(), 0)
		require.NoError(t, err)
		tail, err := log.Tail(t.Context())
		require.NoError(t, err)
		plans, _, err := logrecords.Plans(t.Context(), log, job.Layout().Job, tail)
		require.NoError(t, err)
		return plans[0].Stages[1].Tasks == 3
	}, time.Minute, time.Millisecond)
	close(release)
	g.open.Store(true)
	require.NoError(t, job.Wait())
	sameRows(t, w.want, lines(t, file))
}
