package tasks_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks"
)

// Neither memory nor goroutines grow with the number of rescales. What grows is the log's table of
// writers, of which each instance of a task is one, until its shard is replaced. What a trim or a
// snapshot will release later is waited for; a leak never goes away.
func TestManyRescales(t *testing.T) {
	job, finish := gated(t, tasks.Options{})
	rescale := func(times int) {
		for i := range times {
			_, err := job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 1 + 3*(1-i%2)})
			require.NoError(t, err)
		}
	}
	live := func() (objects, goroutines int) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapObjects), runtime.NumGoroutine()
	}
	rescale(100)
	before, had := live()
	const more = 400
	rescale(more)
	var objects, goroutines int
	if !assert.Eventually(t, func() bool {
		objects, goroutines = live()
		return objects-before < 30*more && goroutines-had < more/4
	}, time.Minute, 50*time.Millisecond) {
		t.Fatalf("after 100 rescales %d objects and %d goroutines, after %d more %d and %d", before, had, more, objects, goroutines)
	}
	finish()
}
