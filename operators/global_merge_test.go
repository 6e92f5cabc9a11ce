package operators_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// newest runs the global sums of hits, and returns the last value of each key and how many changes
// the table had.
func newest(t require.TestingT, o optest.Options, changed func(old, now *int64) bool, parts ...[]optest.Timed[hit]) (last map[string]int64, changes int, r optest.Report) {
	job := operators.NewJob("global")
	src := operators.FromSource(job, "src", optest.Items(disorder, parts...), hitSerde)
	sums := operators.GlobalMerge(src, "sums", serde.String, byKey, summing(), changed)
	last = map[string]int64{}
	// The rows of a key are in order: one task has them, and the sink one partition.
	text := operators.Map(sums, func(c *operators.Change[string, int64]) string { return fmt.Sprint(c.Key, "=", c.Value) })
	out := optest.Collect(func(s *string) string { return strings.Clone(*s) })
	operators.ToSink(operators.Rebalance(text, "one", operators.Groups(1)), "out", out)
	plan, err := job.Plan()
	require.NoError(t, err)
	r, err = optest.Run(plan, o)
	require.NoError(t, err)
	for _, row := range out.Rows {
		key, value, _ := strings.Cut(row, "=")
		var n int64
		_, err := fmt.Sscan(value, &n)
		require.NoError(t, err)
		last[key] = n
	}
	return last, len(out.Rows), r
}

// The last value of each key is the sum of its items, over crashes and moves of key groups.
func TestGlobalMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := [][]optest.Timed[hit]{drawHits(t, "a", 30), drawHits(t, "b", 30), drawHits(t, "c", 30)}
		want := map[string]int64{}
		for _, part := range parts {
			for _, x := range part {
				want[x.Value.Key] += x.Value.N
			}
		}
		got, _, report := newest(t, drawOptions(t), nil, parts...)
		require.Equal(t, want, got)
		require.Zero(t, report.Behind)
	})
}

// A change that does not matter is not sent: of each partition's sum the table has one that is in
// the same ten as the true one.
func TestGlobalMergeSendsWhatMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low, high := map[string]int64{}, map[string]int64{}
		var parts [][]optest.Timed[hit]
		for _, name := range []string{"a", "b", "c"} {
			sums := map[string]int64{}
			part := drawHits(t, name, 60)
			for i := range part {
				part[i].Value.N = rapid.Int64Range(0, 4).Draw(t, "n")
				sums[part[i].Value.Key] += part[i].Value.N
			}
			for key, sum := range sums {
				low[key] += sum / 10 * 10
				high[key] += sum
			}
			parts = append(parts, part)
		}
		got, _, _ := newest(t, drawOptions(t), func(old, now *int64) bool { return *old/10 != *now/10 }, parts...)
		require.Len(t, got, len(high))
		for key, n := range got {
			require.GreaterOrEqual(t, n, low[key], key)
			require.LessOrEqual(t, n, high[key], key)
		}
	})
}

// Of a key that never matters again only the first value of each partition is sent.
func TestGlobalMergeSendsNothing(t *testing.T) {
	var items []optest.Timed[hit]
	for i := range 100 {
		items = append(items, optest.At(int64(i), hit{"a", 1}))
	}
	last, changes, _ := newest(t, optest.Options{CommitEvery: 1, CrashEvery: 20}, func(_, _ *int64) bool { return false }, items, items)
	require.LessOrEqual(t, changes, 2)
	require.Positive(t, last["a"])
	last, changes, _ = newest(t, optest.Options{CommitEvery: 1}, nil, items, items)
	require.EqualValues(t, 200, last["a"])
	require.Greater(t, changes, 10)
}

// A change is compared with what was sent last, which survives crashes.
func TestGlobalMergeComparesWithTheLast(t *testing.T) {
	var items []optest.Timed[hit]
	for i := range 100 {
		items = append(items, optest.At(int64(i), hit{"a", 1}))
	}
	for _, crash := range []int{0, 5, 7, 16, 33} {
		job := operators.NewJob("global")
		src := operators.FromSource(job, "src", optest.Items(0, items), hitSerde)
		sums := operators.GlobalMerge(src, "sums", serde.String, byKey, summing(), func(old, now *int64) bool { return *now-*old >= 10 })
		text := operators.Map(sums, func(c *operators.Change[string, int64]) string { return fmt.Sprint(c.Value) })
		out := optest.Collect(func(s *string) string { return strings.Clone(*s) })
		operators.ToSink(text, "out", out)
		plan, err := job.Plan()
		require.NoError(t, err)
		_, err = optest.Run(plan, optest.Options{Groups: 1, CommitEvery: 1, CrashEvery: crash})
		require.NoError(t, err)
		require.Equal(t, []string{"1", "11", "21", "31", "41", "51", "61", "71", "81", "91"}, out.Rows, "a crash every %d commits", crash)
	}
}

func TestGlobalMergeIsChecked(t *testing.T) {
	job := operators.NewJob("bad")
	src := operators.FromSource(job, "src", optest.Items(0, scattered), hitSerde)
	agg := summing()
	agg.Merge = nil
	operators.GlobalMerge(src, "sums", serde.String, byKey, agg, nil)
	_, err := job.Plan()
	require.ErrorContains(t, err, `global merge "sums": the aggregator has no Merge`)
}
