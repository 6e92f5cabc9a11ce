package operators_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// A plan with clocks that it cannot have says why.
func TestGrainErrors(t *testing.T) {
	job := operators.NewJob("grains")
	src := operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde)
	mixed := operators.Rebalance(src, "mixed")
	some := operators.Filter(mixed, func(*hit) bool { return true })
	operators.KeyBy(some, "a", serde.String, byKey, operators.WatermarkPer(operators.Key, 0))
	operators.KeyBy(operators.Forward(src, "kept"), "b", serde.String, byKey, operators.WatermarkPer(operators.Key, 0))
	operators.KeyBy(src, "c", serde.String, byKey, operators.WatermarkPer(operators.Key, -time.Millisecond))
	operators.KeyBy(src, "d", serde.String, byKey, operators.WatermarkPer(operators.Task, time.Second))
	operators.KeyBy(src, "e", serde.String, byKey, operators.WatermarkPer(operators.Grain{}, 0))
	operators.KeyBy(src, "keys", serde.String, byKey, operators.WatermarkPer(operators.Keys(3), 0))
	operators.Rebalance(src, "f", operators.WatermarkPer(operators.Key, 0))
	operators.KeyBy(mixed, "g", serde.String, byKey, operators.WatermarkPer(operators.Key, 0), operators.ByProducer())
	operators.KeyBy(src, "h", serde.String, byKey, operators.WatermarkPer(operators.Keys(4), 0), operators.ByProducer())
	operators.KeyBy(src, "i", serde.String, byKey, operators.ByProducer())
	left := operators.KeyBy(src, "left", serde.String, byKey, operators.WatermarkPer(operators.Key, time.Second))
	right := operators.KeyBy(src, "right", serde.String, byKey, operators.WatermarkPer(operators.Key, 2*time.Second))
	plain := operators.KeyBy(src, "plain", serde.String, byKey)
	paths := operators.KeyBy(src, "paths", serde.String, byKey, operators.WatermarkPer(operators.Key, time.Second), operators.ByProducer())
	operators.MergeKeyed(left, paths)
	operators.JoinStreams(left, right, "join", time.Second, func(_ *string, l, r *hit) int64 { return 0 })
	operators.MergeKeyed(operators.FilterValues(left, func(_ *string, _ *hit) bool { return true }), plain)
	_, err := job.Plan()
	for _, text := range []string{
		`stream "a": items of one key can overtake each other in stream "mixed", so that a clock for each key would take them for late: use Forward instead of Rebalance, or ByProducer`,
		`stream "h": ByProducer is an option for clocks of keys: use it with WatermarkPer(Key, delay)`,
		`stream "i": ByProducer is an option for clocks of keys`,
		`merge: one of the streams that meet there comes by several paths (ByProducer), and one does not`,
		`stream "c": WatermarkPer: delay -1ms is not a whole number of milliseconds ≥ 0`,
		`stream "d": WatermarkPer: the clock of a task has no delay (1s); its sources have`,
		`stream "e": WatermarkPer: no grain given`,
		`stream "keys": WatermarkPer: Keys(3): use a power of two, at most 256`,
		`stream "f": WatermarkPer is an option of KeyBy and PreAggregate`,
		`"join": the clocks of the streams that meet there differ (one for each key, delay 1s and one for each key, delay 2s): use one WatermarkPer for all`,
		`merge: the clocks of the streams that meet there differ (one for each key, delay 1s and one for a task): use one WatermarkPer for all`,
	} {
		require.ErrorContains(t, err, text)
	}
	require.NotContains(t, err.Error(), `stream "b"`)
	require.NotContains(t, err.Error(), `stream "g"`)
}

// The grain is part of a plan.
func TestGrainOfAPlan(t *testing.T) {
	job := operators.NewJob("grains")
	src := operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde)
	in := operators.KeyBy(src, "in", serde.String, byKey, operators.WatermarkPer(operators.Key, 2*time.Second))
	operators.ToSink(operators.CountWindows(in, operators.Tumbling(time.Second)), "out", nothing[operators.KV[string, operators.Windowed[int64]]]())
	plan, err := job.Plan()
	require.NoError(t, err)
	require.Nil(t, plan.Stages[0].Grain)
	require.Equal(t, &exec.Grain{Kind: exec.GrainKey, Delay: 2000}, plan.Stages[1].Grain)
	require.Nil(t, plan.Stages[2].Grain)

	job = operators.NewJob("paths")
	src = operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde)
	per := operators.WatermarkPer(operators.Key, 0)
	both := operators.MergeKeyed(operators.KeyBy(src, "in", serde.String, byKey, per, operators.ByProducer()), operators.KeyBy(src, "again", serde.String, byKey, per, operators.ByProducer()))
	operators.ToSink(operators.CountWindows(both, operators.Tumbling(time.Second)), "out", nothing[operators.KV[string, operators.Windowed[int64]]]())
	byPath, err := job.Plan()
	require.NoError(t, err)
	require.Equal(t, &exec.Grain{Kind: exec.GrainKey, Streams: 2}, byPath.Stages[1].Grain)

	// The references of a join by foreign keys have the task's clock, whatever clocks the table has.
	job = operators.NewJob("refs")
	src = operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde)
	left := operators.AsTable(operators.KeyBy(src, "left", serde.String, byKey))
	right := operators.AsTable(operators.KeyBy(src, "right", serde.String, byKey, per, operators.ByProducer()))
	refs := operators.JoinForeign(left, right, "refs", func(k *string, _ *hit) string { return *k }, func(_ *string, l, r *hit) int64 { return l.N + r.N })
	operators.ToSink(operators.AsStream(refs), "out", nothing[operators.KV[string, int64]]())
	_, err = job.Plan()
	require.NoError(t, err)
	require.Equal(t, []string{"window.fired", "window.passed", "window"}, []string{plan.Stages[1].Tables[0].Name, plan.Stages[1].Tables[1].Name, plan.Stages[1].Tables[2].Name})
}

// ExampleWatermarkPer: the times of bob's items are behind those of ann's. With a clock for each key
// ann's first window has its result before bob's items come, and his are not late.
func ExampleWatermarkPer() {
	job := operators.NewJob("readings")
	src := operators.FromSource(job, "src", optest.Items(100, []optest.Timed[hit]{
		optest.At(1, hit{"ann", 1}), optest.At(3, hit{"ann", 2}), optest.At(12, hit{"ann", 4}),
		optest.At(2, hit{"bob", 1}), optest.At(4, hit{"bob", 1}), optest.At(13, hit{"bob", 1}),
	}), hitSerde)
	readings := operators.KeyBy(src, "readings", serde.String, byKey, operators.WatermarkPer(operators.Key, 0))
	sums := operators.AggregateWindows(readings, operators.Tumbling(10*time.Millisecond), summing())
	show(job, sums, func(kv *operators.KV[string, operators.Windowed[int64]]) string {
		return fmt.Sprintf("%s [%d,%d) %d", kv.Key, kv.Value.Start, kv.Value.End, kv.Value.Value)
	})
	// Output:
	// ann [0,10) 3
	// ann [10,20) 4
	// bob [0,10) 2
	// bob [10,20) 1
}
