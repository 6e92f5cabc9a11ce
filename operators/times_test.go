package operators_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// observed runs a job over the items of partitions and returns the times of the items that build
// makes.
func observed(t *testing.T, o optest.Options, parts [][]optest.Timed[hit], build func(in operators.Stream[hit]) operators.Flow[string]) (times []int64) {
	t.Helper()
	job := operators.NewJob("times")
	src := operators.FromSource(job, "src", optest.Items(0, parts...), hitSerde)
	operators.ToSink(operators.Observe(build(src), func(ts []int64) { times = append(times, ts...) }), "out", nothing[string]())
	plan, err := job.Plan()
	require.NoError(t, err)
	_, err = optest.Run(plan, o)
	require.NoError(t, err)
	return times
}

// A table's change has the time of the newest item in it, even if time advances before it is
// emitted.
func TestChangeHasTheTimeOfItsItem(t *testing.T) {
	times := observed(t, optest.Options{}, [][]optest.Timed[hit]{{sec(0, 1, "a"), sec(3, 1, "a"), sec(100, 1, "b")}}, func(in operators.Stream[hit]) operators.Flow[string] {
		counts := operators.Count(operators.KeyBy(in, "k", serde.String, byKey))
		return operators.Map(counts, func(c *operators.Change[string, int64]) string { return c.Key })
	})
	require.Contains(t, times, int64(3_000))
	require.Contains(t, times, int64(100_000))
}

// A partial result has the time of its newest item, and so has the result that Eager makes of it.
func TestPartialResultHasTheTimeOfItsNewestItem(t *testing.T) {
	// The second read, and commit, has the last two.
	times := observed(t, optest.Options{CommitEvery: 1}, [][]optest.Timed[hit]{{sec(1, 1), sec(9, 1), sec(4, 1)}}, func(in operators.Stream[hit]) operators.Flow[string] {
		panes := operators.PreAggregate(in, "panes", serde.String, byKey, operators.Tumbling(10*time.Second), operators.Counting[hit]())
		return operators.Map(operators.CombineWindows(panes, operators.Emit(operators.Eager)), func(kv *operators.KV[string, operators.Windowed[int64]]) string { return kv.Key })
	})
	require.Equal(t, []int64{1_000, 9_000}, times)
}

// A source reads its partitions in parallel: the one that is furthest behind is read next, so that
// little waits for the slowest.
func TestPartitionsAreReadSideBySide(t *testing.T) {
	parts := make([][]optest.Timed[hit], 2)
	for i := range int64(5_000) {
		for p, key := range []string{"even", "odd"} {
			parts[p] = append(parts[p], optest.At(2*i+int64(p), hit{key, i}))
		}
	}
	var last [2]int64
	apart := int64(0)
	job := operators.NewJob("side by side")
	src := operators.FromSource(job, "src", optest.Items(0, parts...), hitSerde)
	operators.ToSink(operators.Observe(src, func(ts []int64) {
		for _, at := range ts {
			last[at%2] = at
		}
		apart = max(apart, last[0]-last[1], last[1]-last[0])
	}), "out", nothing[hit]())
	plan, err := job.Plan()
	require.NoError(t, err)
	_, err = optest.Run(plan, optest.Options{Parallelism: 1})
	require.NoError(t, err)
	require.NotZero(t, last[0])
	require.Less(t, apart, int64(4_000), "of 10 000")
}
