package tasks_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/sharedlog/mem"
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
	log, err := embedded.Open(dir, embedded.Options{FsyncInterval: time.Millisecond, SegmentBytes: 1 << 20, CacheBytes: 64 << 10, Logger: quiet})
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

// slowStart is a log in which the first instance of a task is slow to replace its predecessors: it is
// killed meanwhile, and completes when another instance has done so, or is not going to.
type slowStart struct {
	sharedlog.Log
	key     string // the end of the metadata key
	calls   atomic.Int64
	started chan struct{} // closed at the first call
	second  chan struct{} // closed behind the second one
}

func (l *slowStart) CompareAndSet(ctx context.Context, key string, old, value []byte) (sharedlog.Change, error) {
	if !strings.HasPrefix(key, "I/") || !strings.HasSuffix(key, l.key) {
		return l.Log.CompareAndSet(ctx, key, old, value)
	}
	n := l.calls.Add(1)
	if n == 1 {
		close(l.started)
		<-ctx.Done()
		select {
		case <-l.second:
		case <-time.After(100 * time.Millisecond):
		}
	}
	c, err := l.Log.CompareAndSet(context.WithoutCancel(ctx), key, old, value)
	if n == 2 {
		close(l.second)
	}
	return c, err
}

// A rescale is given up while a new task is starting. The task ends before the next rescale starts
// another instance of it, which it would replace.
func TestGivenUpWhileATaskStarts(t *testing.T) {
	w := newWorld(1, 20_000, 2)
	file := filepath.Join(t.TempDir(), "out")
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
	log := &slowStart{Log: mem.New(mem.Options{}), key: "/by-key/1", started: make(chan struct{}), second: make(chan struct{})}
	job, err := tasks.Start(t.Context(), log, counts(t, file, g), tasks.Options{Parallelism: 1, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet})
	require.NoError(t, err)
	defer job.Stop()
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		<-log.started
		giveUp()
	}()
	_, err = job.Rescale(ctx, tasks.Rescale{Stage: "by-key", Tasks: 2})
	require.ErrorIs(t, err, context.Canceled)
	_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 2})
	require.NoError(t, err)
	g.open.Store(true)
	require.NoError(t, job.Wait())
	sameRows(t, w.want, lines(t, file))
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
