package watermark_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// TestSwitchedGrains: a grain that changes at any moment, with delays that allow for the disorder of keys, makes no
// item late and changes no window, session or timer, whatever the parallelism, commits, crashes, interruptions
// and moves. With a delay that is too small, a task that is restored drops the same items again (optest replays it).
func TestSwitchedGrains(t *testing.T) {
	switched := 0
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int64{1, 4, 10, 20}).Draw(t, "size")
		slide := rapid.SampledFrom([]int64{1, 4, 5, 10}).Draw(t, "slide")
		lateness := rapid.SampledFrom([]int64{0, 0, 3, 30}).Draw(t, "lateness")
		eager := rapid.Bool().Draw(t, "eager")
		o := drawOptions(t)
		o.Switch = rapid.SampledFrom([]int64{2, disorder, disorder}).Draw(t, "delay")
		parts := drawPaths(t)

		want, timers := map[keyedWindow]int64{}, map[string]bool{}
		for _, part := range parts {
			for i := range part {
				x := &part[i]
				for _, end := range windowsOf(x.Time, size, slide) {
					want[keyedWindow{x.Value.Key, end}] += x.Value.N
				}
				timers[fmt.Sprint(x.Value.Key, " ", x.Time+size)] = true
			}
		}

		job := operators.NewJob("auto")
		src := operators.FromSource(job, "src", optest.Items(behind(parts), parts...), hitSerde)
		in := operators.KeyBy(src, "k", serde.String, byKey, operators.WatermarkPer(operators.Auto, milliseconds(2)))
		opts := []operators.WindowOption{operators.Lateness(milliseconds(lateness))}
		if eager {
			opts = append(opts, operators.Emit(operators.Eager))
		}
		sums := operators.AggregateWindows(in, operators.Sliding(milliseconds(size), milliseconds(slide)), summing(), opts...)
		got := map[keyedWindow]int64{}
		out := optest.Collect(func(kv *operators.KV[string, operators.Windowed[int64]]) operators.KV[string, operators.Windowed[int64]] {
			kv.Key = clone(&kv.Key)
			return *kv
		})
		operators.ToSink(sums, "out", out)
		fired := optest.Collect(clone)
		rings := operators.Process(in, "rings", func(c *operators.Context[string, string]) operators.Handler[hit] {
			return operators.Handler[hit]{
				Item: func(*hit) { c.SetEventTimer(c.Time() + size) },
				Timers: operators.Timers{OnEvent: func(at int64) {
					c.Emit(fmt.Sprint(c.Key(), " ", at), max(at, c.Watermark()))
				}},
			}
		})
		operators.ToSink(operators.Map(rings, func(kv *operators.KV[string, string]) string { return kv.Value }), "rung", fired)
		plan, err := job.Plan()
		require.NoError(t, err)
		report, err := optest.Run(plan, o)
		require.NoError(t, err)
		switched += report.Switches
		requireNothingLeft(t, report)
		if o.Switch < disorder {
			return
		}
		require.Zero(t, report.Late)
		for _, kv := range out.Rows {
			got[keyedWindow{kv.Key, kv.Value.End}] = kv.Value.Value // the last one counts
		}
		require.Equal(t, want, got)
		if !eager {
			require.Len(t, out.Rows, len(want), "a window has one result")
		}
		for _, r := range fired.Rows {
			require.True(t, timers[r], r)
		}
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(fired.Rows))), len(timers))
	})
	require.Positive(t, switched, "the test cannot fail")
}
