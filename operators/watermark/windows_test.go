package watermark_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// drawPaths draws partitions whose items are out of order by at most disorder. Each key is in one of
// them.
func drawPaths(t *rapid.T) [][]optest.Timed[hit] {
	parts := make([][]optest.Timed[hit], 3)
	for p := range parts {
		parts[p] = drawHits(t, fmt.Sprint("partition ", p), 40)
		for i := range parts[p] {
			parts[p][i].Value.Key += string(rune('A' + p))
		}
	}
	return parts
}

// byOwnTime calls f for the items of each clock in the order of their partition, with the time of the
// clock before the item, as long as no item is behind the watermark.
func byOwnTime(parts [][]optest.Timed[hit], g grain, f func(x *optest.Timed[hit], own int64)) {
	own := map[string]int64{}
	for _, part := range parts {
		for i := range part {
			x := &part[i]
			clock := g.clock(x.Value.Key)
			c, ok := own[clock]
			if !ok {
				c = math.MinInt64
			}
			f(x, c)
			own[clock] = max(c, x.Time-g.delay)
		}
	}
}

func lateRow(kv *operators.KV[string, hit]) string { return showHit(&kv.Value) }

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

type keyedWindow struct {
	key string
	end int64
}

// TestWindowsByKey: with a clock for each key, or for some keys, windows and late items are those of a fold
// over the items of each clock, whatever the size of the windows, the lateness, the partitions, the parallelism,
// commits, crashes, interruptions of Advance, and key groups that move to other chains. No state is left.
func TestWindowsByKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int64{1, 4, 10, 20}).Draw(t, "size")
		slide := rapid.SampledFrom([]int64{1, 4, 5, 10}).Draw(t, "slide")
		o := drawOptions(t)
		g := drawGrain(t, o.Groups)
		lateness := rapid.SampledFrom([]int64{0, 0, 3, 30}).Draw(t, "lateness")
		opts := []operators.WindowOption{operators.Lateness(milliseconds(lateness))}
		kind := rapid.SampledFrom([]string{"final", "eager", "each late"}).Draw(t, "kind")
		switch {
		case kind == "eager":
			opts = append(opts, operators.Emit(operators.Eager))
		case kind == "each late" && lateness > 0:
			opts = append(opts, operators.EachLate())
		}
		parts := g.drawParts(t)

		want, late := map[keyedWindow]int64{}, 0
		byOwnTime(parts, g, func(x *optest.Timed[hit], own int64) {
			ends, open := windowsOf(x.Time, size, slide), 0
			for _, end := range ends {
				if own == math.MinInt64 || end+lateness > own {
					want[keyedWindow{x.Value.Key, end}] += x.Value.N
					open++
				}
			}
			if open == 0 && len(ends) > 0 {
				late++
			}
		})

		job := operators.NewJob("keyed")
		src := operators.FromSource(job, "src", optest.Items(behind(parts), parts...), hitSerde)
		in := operators.KeyBy(src, "k", serde.String, byKey, g.option())
		win := operators.Sliding(milliseconds(size), milliseconds(slide))
		var sums operators.KeyedStream[string, operators.Windowed[int64]]
		if rapid.Bool().Draw(t, "apply") {
			sums = operators.ApplyWindows(in, win, func(_ *string, items []operators.Elem[hit]) (sum int64) {
				for i := range items {
					sum += items[i].Value.N
				}
				return sum
			}, opts...)
		} else {
			sums = operators.AggregateWindows(in, win, summing(), opts...)
		}
		type result = operators.KV[string, operators.Windowed[int64]]
		out := optest.Collect(func(kv *result) result {
			kv.Key = strings.Clone(kv.Key)
			return *kv
		})
		operators.ToSink(sums, "out", out)
		lates := optest.Collect(clone)
		operators.ToSink(operators.Map(operators.Late[hit](sums), lateRow), "late", lates)
		plan, err := job.Plan()
		require.NoError(t, err)
		report, err := optest.Run(plan, o)
		require.NoError(t, err)

		got, results := map[keyedWindow]int64{}, map[keyedWindow]int{}
		for _, kv := range out.Rows {
			w := keyedWindow{kv.Key, kv.Value.End}
			got[w] = kv.Value.Value // the last one counts
			results[w]++
			require.Equal(t, size, kv.Value.End-kv.Value.Start)
		}
		require.Equal(t, want, got)
		if lateness == 0 && kind != "eager" {
			require.Len(t, out.Rows, len(want), "a window has one result")
		}
		require.Equal(t, late, report.Late)
		require.Len(t, lates.Rows, late)
		require.EqualValues(t, late, report.Counts["late_by_key"])
		require.Zero(t, report.Counts["late_by_stream"])
		requireNothingLeft(t, report)
	})
}

// TestLateByKeyIsAFunctionOfTheKeys: with a delay that is too small, a clock for each key drops the same
// items in every run, and the clock of a task does not.
func TestLateByKeyIsAFunctionOfTheKeys(t *testing.T) {
	var parts [3][]optest.Timed[hit]
	for p := range parts {
		for i := range int64(120) {
			back := (i * 7 % 11) % (disorder + 1)
			parts[p] = append(parts[p], optest.At(i-back, hit{fmt.Sprint("key-", p, i%3), i}))
		}
	}
	run := func(grain operators.Grain, delay time.Duration, stream int64, seed uint64) string {
		job := operators.NewJob("late")
		src := operators.FromSource(job, "src", optest.Items(stream, parts[:]...), hitSerde)
		in := operators.KeyBy(src, "k", serde.String, byKey, operators.WatermarkPer(grain, delay))
		sums := operators.AggregateWindows(in, operators.Tumbling(5*time.Millisecond), summing())
		out := optest.Collect(clone)
		operators.ToSink(operators.Map(operators.Late[hit](sums), lateRow), "late", out)
		rows, report := runRows(t, job, windowRows(sums), optest.Options{Parallelism: int(1 + seed%4), Seed: seed, CommitEvery: 3, CrashEvery: 30})
		slices.Sort(out.Rows)
		require.Len(t, out.Rows, report.Late)
		return fmt.Sprint(rows, " late ", out.Rows)
	}
	byKey, byTask := map[string]int{}, map[string]int{}
	for seed := range uint64(20) {
		byKey[run(operators.Key, 2*time.Millisecond, 300, seed)]++
		byTask[run(operators.Task, 0, 2, seed)]++
	}
	require.Equal(t, 1, len(byKey))
	for answer := range byKey {
		require.False(t, strings.HasSuffix(answer, "late []"), "nothing is late: the test cannot fail")
	}
	require.Greater(t, len(byTask), 1, "the test cannot fail")
}
