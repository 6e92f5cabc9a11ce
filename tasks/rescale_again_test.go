package tasks_test

import (
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
)

// A task that has left is named again at once, while its last instance is still ending: another
// instance takes its key groups, and the job comes to its end.
func TestLeftAndNamedAgainAtOnce(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, 20_000, 2)
			file := filepath.Join(t.TempDir(), "out")
			g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
			job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, file, g), tasks.Options{
				Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Protocol: protocol,
			})
			require.NoError(t, err)
			for range 100 {
				for _, n := range []int{6, 2} {
					_, err := job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: n})
					require.NoError(t, err)
				}
			}
			g.open.Store(true)
			require.NoError(t, job.Wait())
			sameRows(t, w.want, lines(t, file))
		})
	}
}

// The status of a job has the tasks that it has: those that have left are gone, and with them the
// state that they had; each of the others says how many key groups it owns.
func TestStatusOfThoseWhoStay(t *testing.T) {
	job, finish := gated(t, tasks.Options{})
	groups := func() (of []int64) {
		for _, s := range job.Status() {
			if s.Stage == "by-key" {
				of = append(of, s.KeyGroups)
			}
		}
		return of
	}
	_, err := job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 4})
	require.NoError(t, err)
	require.Equal(t, []int64{2, 2, 2, 2}, groups())
	_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 1})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return slices.Equal(groups(), []int64{8}) }, time.Minute, time.Millisecond)
	finish()
}
