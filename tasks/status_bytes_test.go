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
)

// The status of a task has the size of its state, and of the records that wait for their markers.
func TestStatusHasSizes(t *testing.T) {
	w := newWorld(1, 200_000, 1)
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 150_000}
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, filepath.Join(t.TempDir(), "out"), g), tasks.Options{
		Parallelism: 1, Groups: 4, CommitInterval: 20 * time.Millisecond, FlushInterval: time.Millisecond, Logger: quiet, Protocol: "marker",
	})
	require.NoError(t, err)
	state, held := false, false
	require.Eventually(t, func() bool {
		for _, s := range job.Status() {
			if s.Stage != "by-key" {
				continue
			}
			state, held = state || s.StateBytes > 0, held || s.HeldBytes > 0
		}
		return state && held
	}, time.Minute, 100*time.Microsecond)
	g.open.Store(true)
	require.NoError(t, job.Wait())
	for _, s := range job.Status() {
		require.Zero(t, s.HeldBytes, "nothing waits at the end")
	}
}
