package slice_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/slice"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

func same(v *int64) int64 { return *v }

// A job over two slices has each item once, whatever crashes, and none of them is late.
func TestSlices(t *testing.T) {
	crashes := 0
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var parts [2][]int64
		var want []int64
		for i := range int64(300) {
			v := i - rng.Int64N(10)
			parts[i%2] = append(parts[i%2], v)
			want = append(want, v)
		}
		rows := optest.Collect[int64](nil)
		job := operators.NewJob("slices")
		src := slice.Of(parts[0], same).And(parts[1]).Delay(10 * time.Millisecond)
		require.Equal(t, 2, src.Partitions())
		operators.ToSink(operators.FromSource(job, "in", src, serde.Int64), "out", rows)
		plan, err := job.Plan()
		require.NoError(t, err)
		report, err := optest.Run(plan, optest.Options{Parallelism: 2, Seed: seed, CrashEvery: 4})
		require.NoError(t, err)
		crashes += report.Crashes
		require.Zero(t, report.Behind)
		slices.Sort(want)
		slices.Sort(rows.Rows)
		require.Equal(t, want, rows.Rows)
	}
	require.NotZero(t, crashes)
}

func TestPosition(t *testing.T) {
	open := func(items ...int64) operators.Partition[int64] {
		p, err := slice.Of(items, same).Open(0)
		require.NoError(t, err)
		return p
	}
	p := open(5, 3, 9)
	require.Equal(t, operators.MinTime, p.Watermark())
	var b operators.Batch[int64]
	st, err := p.Read(&b, 2, 0)
	require.NoError(t, err)
	require.Equal(t, operators.More, st.State)
	require.EqualValues(t, 5, p.Watermark())
	again := open(5, 3, 9)
	require.NoError(t, again.Seek(p.Position(nil)))
	require.EqualValues(t, 5, again.Watermark())
	b.Reset()
	st, err = again.Read(&b, 2, 0)
	require.NoError(t, err)
	require.Equal(t, operators.Ended, st.State)
	require.Equal(t, []int64{9}, b.Items)
	require.ErrorContains(t, open(5).Seek(p.Position(nil)), "position 02 does not fit a slice of 1 items")
	require.ErrorContains(t, open(5).Seek(nil), "does not fit")
}

func Example() {
	type order struct {
		At    int64
		Cents int64
	}
	orders := slice.Of([]order{{1000, 250}, {1500, 100}, {2500, 70}}, func(o *order) int64 { return o.At })
	job := operators.NewJob("sums")
	byAll := operators.KeyBy(operators.FromSource(job, "orders", orders, serde.JSON[order]()), "by-all", serde.Int64, func(*order) int64 { return 0 })
	perSecond := operators.CountWindows(byAll, operators.Tumbling(time.Second))
	operators.ToSink(perSecond, "out", operators.FuncSink(func(b *operators.Batch[operators.KV[int64, operators.Windowed[int64]]]) error {
		for _, r := range b.Items {
			fmt.Println(r.Value.Start, r.Value.Value)
		}
		return nil
	}))
	plan, err := job.Plan()
	if err != nil {
		panic(err)
	}
	if _, err := optest.Run(plan, optest.Options{}); err != nil {
		panic(err)
	}
	// Output:
	// 1000 2
	// 2000 1
}
