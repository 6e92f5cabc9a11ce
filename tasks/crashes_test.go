package tasks_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks"
)

// overCrashes runs a job to its end while its tasks fail after a random number of items of its source
// "keys", every at most, and the process ends and starts again, three times at most. Each beside runs next to each
// life of the process, which has a number, until the job refuses what it asks for.
func overCrashes(t *testing.T, rng *rand.Rand, every int, start func() *tasks.Job, beside ...func(job *tasks.Job, life int)) {
	faults := 0
	for life := 0; ; life++ {
		job := start()
		var wait sync.WaitGroup
		for _, f := range beside {
			wait.Go(func() { f(job, life) })
		}
		stop := life < 3 && rng.IntN(4) > 0
		for at := 0; !ended(job) && faults <= 20; {
			at += rng.IntN(every)
			for !ended(job) && items(job, "keys") < at {
				runtime.Gosched()
			}
			if stop && rng.IntN(3) == 0 {
				break
			}
			status := job.Status()
			if s := status[rng.IntN(len(status))]; s.Stage != "out" {
				_, _ = job.Fail(t.Context(), slices.IndexFunc(job.Layout().Plan.Stages, func(x exec.StageSpec) bool { return x.Name == s.Stage }), s.Task)
				faults++
			}
		}
		if stop && !ended(job) {
			job.Stop()
			wait.Wait()
			faults++
			continue
		}
		require.NoError(t, job.Wait())
		wait.Wait()
		t.Log(faults, "faults")
		return
	}
}

func ended(job *tasks.Job) bool {
	select {
	case <-job.Done():
		return true
	default:
		return false
	}
}
