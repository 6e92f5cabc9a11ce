package tasks_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
)

func TestRunsFormat(t *testing.T) {
	for _, c := range []struct {
		program, job string
		runs         bool
	}{
		{"2", "2", true},
		{"2", "1", true},
		{"10", "9", true},
		{"1", "2", false},
		{"2", "3", false},
		{"9", "10", false},
		{"2", "0", false},
		{"2", "", false},
		{"2", "-1", false},
		{"2", "x", false},
	} {
		require.Equal(t, c.runs, tasks.RunsFormat(c.program, c.job), "program %s, job %s", c.program, c.job)
	}
}

// A job that a program of format 1 has described and registered is registered, joined and run by this
// program; one of a later format is refused by name.
func TestJobsOfOtherFormats(t *testing.T) {
	log := mem.New(mem.Options{})
	plan := simplePlan(t, serde.Int64)
	spec, err := tasks.Describe(plan, tasks.Options{Parallelism: 1, Logger: quiet})
	require.NoError(t, err)
	require.Equal(t, "2", spec.Format)
	spec.Format = "1"
	id, err := tasks.Register(t.Context(), log, nil, spec)
	require.NoError(t, err)
	_, err = tasks.Join(t.Context(), log, spec, id, plan, tasks.Options{Logger: quiet})
	require.NoError(t, err)
	job, err := tasks.Start(t.Context(), log, plan, tasks.Options{Parallelism: 1, Logger: quiet})
	require.NoError(t, err)
	require.NoError(t, job.Wait())

	spec.Format = "7"
	_, err = tasks.Register(t.Context(), log, nil, spec)
	require.EqualError(t, err, `job "simple" was described in format 7, this program uses 6: use programs of one release`)
}

// A job whose keys have clocks is described in format 3, one whose keys may get them in format 5, all others in format
// 2. A job that is started again with other clocks is refused.
func TestFormatOfGrains(t *testing.T) {
	log := mem.New(mem.Options{})
	for _, c := range []struct {
		grain   operators.RouteOption
		format  string
		refused bool
	}{
		{operators.WatermarkPer(operators.Key, time.Second), "3", false},
		{operators.WatermarkPer(operators.Key, time.Second), "3", false},
		{operators.WatermarkPer(operators.Key, 2*time.Second), "3", true},
		{operators.WatermarkPer(operators.Auto, time.Second), "5", true},
		{operators.WatermarkPer(operators.Task, 0), "2", true},
	} {
		job := operators.NewJob("grains")
		in := operators.FromSource(job, "in", optest.Items(0, []optest.Timed[int64]{}), serde.Int64)
		byKey := operators.KeyBy(in, "by-key", serde.Int64, func(v *int64) int64 { return *v }, c.grain)
		operators.ToSink(operators.CountWindows(byKey, operators.Tumbling(time.Second)), "out",
			operators.FuncSink(func(*operators.Batch[operators.KV[int64, operators.Windowed[int64]]]) error { return nil }))
		plan, err := job.Plan()
		require.NoError(t, err)
		spec, err := tasks.Describe(plan, tasks.Options{Parallelism: 1, Logger: quiet})
		require.NoError(t, err)
		require.Equal(t, c.format, spec.Format)
		_, err = tasks.Register(t.Context(), log, nil, spec)
		if c.refused {
			require.ErrorIs(t, err, tasks.ErrSettings)
			continue
		}
		require.NoError(t, err)
	}
}

// A job that reads several partitions is described in format 4, because they may move at any moment: unless they
// cannot.
func TestFormatOfPartitions(t *testing.T) {
	none := []optest.Timed[int64]{}
	for _, c := range []struct {
		protocol string
		parts    [][]optest.Timed[int64]
		format   string
	}{
		{"fused", [][]optest.Timed[int64]{none}, "2"},
		{"fused", [][]optest.Timed[int64]{none, none}, "4"},
		{"marker", [][]optest.Timed[int64]{none, none}, "4"},
		{"txn", [][]optest.Timed[int64]{none, none}, "2"},
	} {
		spec, err := tasks.Describe(counts(t, "any", optest.Items(0, c.parts...)), tasks.Options{Parallelism: 1, Protocol: c.protocol, Logger: quiet})
		require.NoError(t, err)
		require.Equal(t, c.format, spec.Format, "%s, %d partitions", c.protocol, len(c.parts))
	}
}
