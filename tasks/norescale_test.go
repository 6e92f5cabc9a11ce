//go:build norescale

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
	"tailrace.dev/tailrace/tasks/control"
	"tailrace.dev/tailrace/tasks/runtime"
)

// Without package handover (scripts/without-handover.sh) jobs run, and resume; a request to rescale one is
// refused, and so is a job that another program has rescaled.
func TestWithoutHandover(t *testing.T) {
	for _, protocol := range []string{"fused", "marker", "txn"} {
		w := newWorld(4, 20_000, 2)
		dir := t.TempDir()
		plan := counts(t, filepath.Join(dir, "out"), gate{optest.Items(delay, w.parts...), new(atomic.Bool), 5000})
		log := mem.New(mem.Options{})
		o := tasks.Options{Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Protocol: protocol}
		job, err := tasks.Start(t.Context(), log, plan, o)
		require.NoError(t, err)
		_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 3})
		if protocol == "txn" {
			require.ErrorContains(t, err, "use fused or marker")
		} else {
			require.ErrorIs(t, err, runtime.ErrNoHandover)
		}
		spec, err := tasks.Describe(plan, o)
		require.NoError(t, err)
		require.ErrorIs(t, spec.CheckRescale(tasks.Rescale{Stage: "by-key", Tasks: 3}), runtime.ErrNoHandover)
		l := job.Layout()
		mover, err := spec.Rescaler(t.Context(), log, l.Job, tasks.Options{Logger: quiet})
		require.NoError(t, err)
		require.Nil(t, mover)
		_, err = job.Fail(t.Context(), 1, 0)
		require.NoError(t, err)
		job.Stop()

		again := counts(t, filepath.Join(dir, "out"), optest.Items(delay, w.parts...))
		job, err = tasks.Start(t.Context(), log, again, o)
		require.NoError(t, err)
		require.NoError(t, job.Wait())
		sameRows(t, w.want, lines(t, filepath.Join(dir, "out")))

		c, err := control.Claim(t.Context(), log, l.Job, 1)
		require.NoError(t, err)
		next := *c.Plan
		next.Number = 2
		require.NoError(t, c.Append(t.Context(), &next, l, nil))
		_, err = tasks.Start(t.Context(), log, again, o)
		require.ErrorContains(t, err, `has been rescaled, which this program cannot continue`)
	}
}
