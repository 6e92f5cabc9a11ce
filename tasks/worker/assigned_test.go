package worker

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
)

// leaving is a log whose answers come when their caller has gone.
type leaving struct {
	sharedlog.Log
	leave context.CancelFunc
}

func (l leaving) Tail(ctx context.Context) (sharedlog.LSN, error) {
	l.leave()
	return 0, ctx.Err()
}

// The first task of a job is withdrawn while it gets ready: the next one starts nevertheless.
func TestFirstIsTakenAway(t *testing.T) {
	log, quiet := mem.New(mem.Options{}), slog.New(slog.NewTextHandler(io.Discard, nil))
	job := operators.NewJob("job")
	keys := operators.FromSource(job, "keys", optest.Items(0, []optest.Timed[int64]{optest.At[int64](1, 1)}), serde.Int64)
	operators.ToSink(keys, "out", operators.FuncSink(func(*operators.Batch[int64]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	spec, err := tasks.Describe(plan, tasks.Options{Parallelism: 1, Groups: 1})
	require.NoError(t, err)
	id, err := tasks.Register(t.Context(), log, nil, spec)
	require.NoError(t, err)
	var built atomic.Int32
	w := &worker{opt: Options{Logger: quiet, Build: func(*tasks.Spec) (*operators.Plan, error) {
		built.Add(1)
		return plan, nil
	}}}
	life, end := context.WithCancel(t.Context())
	defer w.run.Wait()
	defer end()
	c := &executor{life: life}
	c.drainFor(7)
	ctx, leave := context.WithCancel(t.Context())
	w.log = leaving{log, leave}
	require.ErrorIs(t, w.join(ctx, c, spec, id), context.Canceled)
	w.log = log
	require.NoError(t, w.join(t.Context(), c, spec, id))
	require.NoError(t, w.join(t.Context(), c, spec, id))
	require.EqualValues(t, 2, built.Load())
}
