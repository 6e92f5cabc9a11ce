package jobs_test

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
)

// No worker reports a job that has ended or was stopped: what its sinks have committed is in the
// log. Until it is read there, it is unknown.
func TestFiguresOfJobsThatDoNotRun(t *testing.T) {
	const n = 1000
	var items []optest.Timed[int64]
	for i := range int64(n) {
		items = append(items, optest.At(i, i))
	}
	job := operators.NewJob("rows")
	operators.ToSink(operators.FromSource(job, "in", optest.Items(0, items), serde.Int64), "out", operators.FuncSink(func(*operators.Batch[int64]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	o := tasks.Options{Parallelism: 1, Groups: 1, CommitInterval: time.Millisecond, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	spec, err := tasks.Describe(plan, o)
	require.NoError(t, err)
	running, err := tasks.Start(t.Context(), log, plan, o)
	require.NoError(t, err)
	require.NoError(t, running.Wait())

	look := &jobs.Overview{View: meta.View{
		Jobs:   map[string]meta.Job{"rows": {Spec: spec}, "new": {Spec: spec}},
		States: map[string]meta.State{"rows": {Phase: meta.Stopped, ID: running.Layout().Job}},
	}}
	for _, j := range look.Jobs() {
		require.True(t, j.Unknown)
		require.EqualValues(t, operators.MinTime, j.Watermark)
	}
	require.NoError(t, look.Recall(t.Context(), log))
	all := look.Jobs()
	require.Equal(t, "new", all[0].Name)
	require.True(t, all[0].Unknown)
	require.Equal(t, "rows", all[1].Name)
	require.False(t, all[1].Unknown)
	require.EqualValues(t, n, all[1].Rows)
	require.EqualValues(t, operators.MaxTime, all[1].Watermark)
}
