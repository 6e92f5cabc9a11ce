package tasks_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks"
)

// Neither memory nor goroutines grow with the number of rescales. What does is the log's table of
// writers, of which each instance of a task is one, until its shard is replaced.
func TestManyRescales(t *testing.T) {
	job, finish := gated(t, tasks.Options{})
	rescale := func(times int) (objects, goroutines int) {
		for i := range times {
			_, err := job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 1 + 3*(1-i%2)})
			require.NoError(t, err)
		}
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapObjects), runtime.NumGoroutine()
	}
	before, had := rescale(100)
	const more = 400
	after, goroutines := rescale(more)
	require.Less(t, (after-before)/more, 30, "live objects a rescale: %d after 100, %d after %d more", before, after, more)
	require.Less(t, goroutines-had, more/2)
	finish()
}
