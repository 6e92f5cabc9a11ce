package tasks_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/observe"
)

// gated starts a job that waits for its gate after some items, and is trimmed all the time.
func gated(t *testing.T, o tasks.Options) (job *tasks.Job, finish func()) {
	w := newWorld(1, 20_000, 2)
	dir := t.TempDir()
	file := filepath.Join(dir, "out")
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
	log, err := embedded.Open(dir, embedded.Options{FsyncInterval: time.Millisecond, SegmentBytes: 1 << 20, Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	o.Parallelism, o.Groups, o.CommitInterval, o.Logger = 1, 8, time.Millisecond, quiet
	o.TrimBytes, o.TrimInterval, o.Checkpoints = 1, time.Millisecond, storetest.NewMem()
	job, err = tasks.Start(t.Context(), log, counts(t, file, g), o)
	require.NoError(t, err)
	t.Cleanup(job.Stop)
	return job, func() {
		g.open.Store(true)
		select {
		case <-job.Done():
		case <-time.After(time.Minute):
			t.Fatalf("the job does not end: %+v", job.Status())
		}
		require.NoError(t, job.Wait())
		sameRows(t, w.want, lines(t, file))
	}
}

// The caller gives a rescale up at each of its steps. The job ends with the same rows, a savepoint
// can be made, and the next rescale reaches its goal.
func TestRescaleGivenUp(t *testing.T) {
	for _, at := range []observe.Step{observe.RescaleSilent, observe.RescalePlanning, observe.RescalePlanned, observe.RescaleReleasing, observe.RescaleTaking} {
		for _, next := range []string{"end", "savepoint", "rescale"} {
			t.Run(fmt.Sprint(at, ", ", next), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				job, finish := gated(t, tasks.Options{Observer: func(e observe.Event) {
					if e.Step == at {
						cancel()
					}
				}})
				_, err := job.Rescale(ctx, tasks.Rescale{Stage: "by-key", Tasks: 4})
				require.ErrorIs(t, err, context.Canceled)
				within, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				switch next {
				case "savepoint":
					_, err = job.Savepoint(within, "s", false)
				case "rescale":
					_, err = job.Rescale(within, tasks.Rescale{Stage: "by-key", Tasks: 2})
				default:
					err = nil
				}
				require.NoError(t, err)
				finish()
			})
		}
	}
}

// A task that has come by one rescale and left by another one has ended: the instance that Fail
// starts in its place ends, too.
func TestFailAfterItHasLeft(t *testing.T) {
	job, finish := gated(t, tasks.Options{})
	for _, n := range []int{3, 1} {
		_, err := job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: n})
		require.NoError(t, err)
	}
	_, err := job.Fail(t.Context(), 2, 2)
	require.NoError(t, err)
	finish()
}
