package operators_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
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

// A change that does not matter is sent at the end of the input only, when the last value of each key is
// exact: over crashes, moves of key groups, and commits in between.
func TestGlobalMergeSendsWhatMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, most := map[string]int64{}, 0
		var parts [][]optest.Timed[hit]
		for _, name := range []string{"a", "b", "c"} {
			sums := map[string]int64{}
			part := drawHits(t, name, 60)
			for i := range part {
				part[i].Value.N = rapid.Int64Range(0, 4).Draw(t, "n")
				sums[part[i].Value.Key] += part[i].Value.N
			}
			for key, sum := range sums {
				want[key] += sum
				most += 2 + int(sum/10) // the first, each ten, the last
			}
			parts = append(parts, part)
		}
		got, changes, report := newest(t, drawOptions(t), func(old, now *int64) bool { return *old/10 != *now/10 }, parts...)
		require.Equal(t, want, got)
		require.LessOrEqual(t, changes, most)
		require.Zero(t, report.Behind)
	})
}

// Of a key that never matters again only the first and the last value of each partition are sent.
func TestGlobalMergeSendsNothing(t *testing.T) {
	var items []optest.Timed[hit]
	for i := range 100 {
		items = append(items, optest.At(int64(i), hit{"a", 1}))
	}
	last, changes, _ := newest(t, optest.Options{CommitEvery: 1, CrashEvery: 20}, func(_, _ *int64) bool { return false }, items, items)
	require.LessOrEqual(t, changes, 4)
	require.EqualValues(t, 200, last["a"])
	last, changes, _ = newest(t, optest.Options{CommitEvery: 1}, nil, items, items)
	require.EqualValues(t, 200, last["a"])
	require.Greater(t, changes, 10)
}

// What is sent at the end is more than a commit can contain: the call stops between two keys, and continues.
func TestGlobalMergeEndsInParts(t *testing.T) {
	job := operators.NewJob("global")
	keyed := operators.KeyBy(operators.FromSource(job, "src", optest.Items[int64](0, nil), serde.Int64), "in", serde.Int64, func(v *int64) int64 { return *v })
	sums := operators.GlobalMerge(keyed, "sums", serde.Int64, func(kv *operators.KV[int64, int64]) int64 { return kv.Key },
		operators.Counting[operators.KV[int64, int64]](), func(_, _ *int64) bool { return false })
	operators.ToSink(sums, "out", operators.FuncSink(func(*operators.Batch[operators.Change[int64, int64]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	rt := &benchRuntime{outs: []*exec.Output{exec.NewOutput(64)}}
	c, err := plan.Stages[1].New(rt)
	require.NoError(t, err)
	sent := func() (n int) {
		for _, g := range rt.outs[0].Touched() {
			n += rt.outs[0].Section(g).Items
		}
		return n
	}
	const keys = 500
	for range 2 {
		for key := range int64(keys) {
			item := serde.AppendInt64(serde.AppendInt64(serde.AppendInt64(nil, 10), key), key) // time, key, value
			_, err := c.Process(&exec.In{Group: int(key % 3), Items: 1}, item, exec.Budget{})
			require.NoError(t, err)
		}
		require.NoError(t, c.Flush())
	}
	require.Equal(t, keys, sent())
	did, err := c.Advance(exec.Bounds{Time: 1000}, exec.Budget{Bytes: 400})
	require.NoError(t, err)
	require.Equal(t, exec.Did{All: true}, did)
	for done := 0; !did.All || done == 0; done += did.Units {
		did, err = c.Advance(exec.Bounds{Time: exec.MaxTime}, exec.Budget{Bytes: 400})
		require.NoError(t, err)
		require.Less(t, did.Units, 100, "400 bytes, 4 and more a part")
		require.Equal(t, keys+done+did.Units, sent())
	}
	require.Equal(t, 2*keys, sent())
	did, err = c.Advance(exec.Bounds{Time: exec.MaxTime}, exec.Budget{})
	require.NoError(t, err)
	require.Equal(t, exec.Did{All: true}, did, "nothing is sent again")
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
		require.Equal(t, []string{"1", "11", "21", "31", "41", "51", "61", "71", "81", "91", "100"}, out.Rows, "a crash every %d commits", crash)
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

// What a key group has of a key has the time of its newest item.
func TestGlobalPartsHaveTimes(t *testing.T) {
	job := operators.NewJob("global")
	src := operators.FromSource(job, "src", optest.Items(disorder, []optest.Timed[hit]{optest.At(5, hit{"a", 1}), optest.At(9, hit{"a", 1}), optest.At(7, hit{"a", 1})}), hitSerde)
	parts := operators.GlobalParts(src, "parts", serde.String, byKey, summing(), nil)
	newest, last := int64(0), int64(0)
	operators.ToSink(parts, "out", operators.FuncSink(func(b *operators.Batch[operators.KV[string, operators.Part[int64]]]) error {
		for i := range b.Items {
			newest, last = max(newest, b.Times[i]), b.Items[i].Value.Acc
		}
		return nil
	}))
	plan, err := job.Plan()
	require.NoError(t, err)
	_, err = optest.Run(plan, optest.Options{CommitEvery: 100, NoReplay: true})
	require.NoError(t, err)
	require.EqualValues(t, 9, newest)
	require.EqualValues(t, 3, last)
}
