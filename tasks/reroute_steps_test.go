package tasks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/crash/walk"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/observe"
)

// A job ends at each step of a change of a routing table, when it is there for the first, second or fifth time, under both
// protocols, and is started again: each item is processed in order, on the state of all items before it, once.
func TestEndsAtEachStepOfARoute(t *testing.T) {
	for i, point := range walk.OfRoutes() {
		for k, times := range []int{1, 2, 5} {
			protocol := []string{"fused", "marker"}[(i+k)%2]
			t.Run(fmt.Sprintf("%s/%d/%s", point, times, protocol), func(t *testing.T) {
				t.Parallel()
				// The input may end before a task comes to the step so often: then repeat it with a longer one.
				for n := 30_000; n <= 480_000; n *= 4 {
					if endsAt(t, observe.Step(point), times, protocol, uint64(10*i+k), n) {
						return
					}
				}
				require.Fail(t, "the step is not reached")
			})
		}
	}
}

// endsAt reports whether the job of n items came to the step so often.
func endsAt(t *testing.T, step observe.Step, times int, protocol string, seed uint64, n int) bool {
	rng := rand.New(rand.NewPCG(seed, 84))
	x := newTrails(seed, n, 2)
	file, log := filepath.Join(t.TempDir(), "out"), mem.New(mem.Options{})
	var reached atomic.Int64
	life := func(observer observe.Observer, cancelled context.Context) *tasks.Job {
		job, err := tasks.Start(cancelled, log, x.plan(t, file), tasks.Options{
			Parallelism: 1 + int(seed%3), Groups: 8, Slots: 4, CommitInterval: time.Millisecond, Logger: quiet, Lead: 8 << 10, Protocol: protocol,
			TrimBytes: 1, TrimInterval: time.Millisecond, Observer: observer,
		})
		require.NoError(t, err)
		return job
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	amid := make(chan observe.Event, 1) // a task that is in the middle of a change
	job := life(func(e observe.Event) {
		if e.Step == step && reached.Add(1) == int64(times) {
			end() // what the step is followed by finds the job at its end
		}
		if e.Step == observe.RouteBegun && step == observe.RouteResumed {
			select {
			case amid <- e:
			default:
			}
		}
	}, ctx)
	var failing sync.WaitGroup
	failing.Go(func() {
		for {
			select {
			case e := <-amid:
				stage := slices.IndexFunc(job.Layout().Plan.Stages, func(s exec.StageSpec) bool { return s.Name == e.Stage })
				_, _ = job.Fail(ctx, stage, e.Task)
			case <-job.Done():
				return
			}
		}
	})
	rescales := 1 // of 6 requests
	if step == observe.RouteEntered {
		rescales = 4
	}
	for n := 0; !ended(job); n++ {
		stage := []string{"by-key", "by-digit"}[rng.IntN(2)]
		if rng.IntN(6) < rescales {
			_, _ = job.Rescale(ctx, tasks.Rescale{Stage: stage, Tasks: 1 + n%4})
		} else {
			_ = job.Reroute(ctx, aReroute(rng, job, stage))
		}
	}
	failing.Wait()
	_ = job.Wait()
	if reached.Load() < int64(times) {
		return false
	}
	job = life(nil, t.Context())
	require.NoError(t, job.Wait())
	sameRows(t, x.want, lines(t, file))
	return true
}
