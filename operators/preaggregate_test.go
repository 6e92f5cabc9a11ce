package operators_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// partials returns the partial results of hits in the order in which one task emits them.
func partials(t *testing.T, items []optest.Timed[hit], commitEvery int, opts ...operators.RouteOption) (rows []string) {
	job := operators.NewJob("partials")
	in := operators.FromSource(job, "in", optest.Items(100, items), hitSerde)
	panes := operators.PreAggregate(in, "panes", serde.String, byKey, operators.Tumbling(10*time.Millisecond), summing(), opts...)
	text := operators.Map(panes, func(kv *operators.KV[string, operators.Pane[int64]]) string {
		return fmt.Sprintf("%s %d: %d", kv.Key, kv.Value.End, kv.Value.Acc)
	})
	out := optest.Collect[string](func(s *string) string { return string([]byte(*s)) })
	operators.ToSink(text, "out", out)
	plan, err := job.Plan()
	require.NoError(t, err)
	_, err = optest.Run(plan, optest.Options{Groups: 1, CommitEvery: commitEvery})
	require.NoError(t, err)
	return out.Rows
}

var scattered = []optest.Timed[hit]{
	optest.At(25, hit{"a", 1}), optest.At(5, hit{"a", 2}), optest.At(26, hit{"b", 4}), optest.At(15, hit{"b", 8}), optest.At(3, hit{"b", 16}), optest.At(27, hit{"a", 32}),
}

// The partial results of a commit are in the order of their panes, whatever the order of the items:
// a clock that follows them makes none of them late.
func TestPartialsInOrderOfPanes(t *testing.T) {
	require.Equal(t, []string{"a 10: 2", "b 10: 16", "b 20: 8", "a 30: 33", "b 30: 4"}, partials(t, scattered, 1000))
	require.Equal(t, []string{"a 10: 2", "a 30: 1", "b 30: 4"}, partials(t, scattered[:3], 1000))
}

// MergeItems and MergeAt emit partial results between commits too.
func TestMergeTriggers(t *testing.T) {
	require.Equal(t, []string{"a 10: 2", "a 30: 1", "b 20: 8", "b 30: 4", "b 10: 16", "a 30: 32"}, partials(t, scattered, 1000, operators.MergeItems(2)))
	point := operators.MergeAt(func(h *hit) bool { return h.N == 8 })
	require.Equal(t, []string{"a 10: 2", "b 20: 8", "a 30: 1", "b 30: 4", "b 10: 16", "a 30: 32"}, partials(t, scattered, 1000, point))
}

// With Hot the items of a key leave one by one until the key is frequent; then they are folded, until a commit or a point.
func TestHot(t *testing.T) {
	var items []optest.Timed[hit]
	for i := range int64(9) {
		items = append(items, optest.At(i, hit{"often", i}))
	}
	items = append(items, optest.At(8, hit{"rare", 1}), optest.At(15, hit{"often", 30}), optest.At(9, hit{"often", 40}))
	var alone []string
	for i := range 8 {
		alone = append(alone, fmt.Sprint("often 10: ", i))
	}
	require.Equal(t, append(alone, "rare 10: 1", "often 10: 48", "often 20: 30"), partials(t, items, 1000, operators.Hot()))
	point := operators.MergeAt(func(h *hit) bool { return h.Key == "rare" })
	require.Equal(t, append(alone, "rare 10: 1", "often 10: 8", "often 20: 30", "often 10: 40"), partials(t, items, 1000, operators.Hot(), point))
	require.Equal(t, append(alone, "often 10: 8", "rare 10: 1", "often 20: 30", "often 10: 40"), partials(t, items, 1, operators.Hot()), "a commit begins from nothing")
}

// An aggregator that keeps items gets copies, also of those that leave at once: what it does to them is not seen by others.
func TestHotCopiesWhatIsKept(t *testing.T) {
	job := operators.NewJob("kept")
	src := operators.FromSource(job, "src", optest.Items(0, []optest.Timed[[]byte]{optest.At(1, []byte("zyx")), optest.At(2, []byte("cba"))}), serde.Bytes)
	letters := operators.Aggregator[[]byte, []byte]{
		Keeps: true, Acc: serde.Bytes,
		Add:   func(acc, v *[]byte, _ int64) { *acc = append(*v, *acc...); slices.Sort(*acc) },
		Merge: func(acc, other *[]byte) { *acc = append(slices.Clip(*acc), *other...); slices.Sort(*acc) },
	}
	sorted := operators.CombineWindows(operators.PreAggregate(src, "k", serde.Int64, func(*[]byte) int64 { return 0 }, operators.Tumbling(10*time.Millisecond), letters, operators.Hot()))
	rows, _ := runRows(t, job, operators.Merge("rows",
		operators.Map(sorted, func(kv *operators.KV[int64, operators.Windowed[[]byte]]) string {
			return "sorted " + string(kv.Value.Value)
		}),
		operators.Map(src, func(v *[]byte) string { return string(*v) })), optest.Options{})
	require.Equal(t, []string{"cba", "sorted abcxyz", "zyx"}, rows)
}

func TestMergeTriggersAreChecked(t *testing.T) {
	plan := func(build func(operators.Stream[hit])) error {
		job := operators.NewJob("bad")
		build(operators.FromSource(job, "in", optest.Items(0, scattered), hitSerde))
		_, err := job.Plan()
		return err
	}
	pre := func(o ...operators.RouteOption) func(operators.Stream[hit]) {
		return func(in operators.Stream[hit]) {
			operators.PreAggregate(in, "panes", serde.String, byKey, operators.Tumbling(time.Second), summing(), o...)
		}
	}
	require.ErrorContains(t, plan(pre(operators.MergeItems(-1))), "MergeItems(-1) is negative")
	require.ErrorContains(t, plan(pre(operators.MergeAt(func(*int) bool { return true }))), "MergeAt has a func(*int) bool for items that are operators_test.hit")
	require.ErrorContains(t, plan(func(in operators.Stream[hit]) { operators.KeyBy(in, "k", serde.String, byKey, operators.MergeItems(3)) }),
		`stream "k": MergeItems, MergeAt and Hot are options of PreAggregate`)
	require.ErrorContains(t, plan(pre(operators.Hot(), operators.WatermarkPer(operators.Keys(4), 0))), "with Hot keys cannot share clocks; use WatermarkPer(Key, delay)")
	require.ErrorContains(t, plan(func(in operators.Stream[hit]) { operators.Rebalance(in, "k", operators.Hot()) }),
		`stream "k": MergeItems, MergeAt and Hot are options of PreAggregate`)
}
