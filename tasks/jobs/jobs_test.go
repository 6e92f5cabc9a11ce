package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks"
)

// A job whose grain may change is not submitted: nothing on workers would change it.
func TestAutoIsForOneProcess(t *testing.T) {
	job := operators.NewJob("autos")
	in := operators.FromSource(job, "keys", optest.Items(0, []optest.Timed[int64]{}), serde.Int64)
	byKey := operators.KeyBy(in, "by-key", serde.Int64, func(v *int64) int64 { return *v }, operators.WatermarkPer(operators.Auto, time.Second))
	operators.ToSink(operators.CountWindows(byKey, operators.Tumbling(time.Second)), "out", operators.FuncSink(func(*operators.Batch[operators.KV[int64, operators.Windowed[int64]]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	spec, err := tasks.Describe(plan, tasks.Options{})
	require.NoError(t, err)
	_, err = Submit(t.Context(), nil, spec)
	require.EqualError(t, err, `job "autos": nothing changes the grain of stage "by-key" on workers (WatermarkPer(Auto)): run the job in one process, or use Key with a delay of 1000 ms or more, or Task`)
}
