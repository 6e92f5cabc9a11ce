package operators_test

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

// listing lists items with their times.
func listing() operators.Aggregator[hit, string] {
	return operators.Aggregator[hit, string]{
		Add:   func(acc *string, h *hit, at int64) { *acc += fmt.Sprint(" ", at, ":", h.N) },
		Merge: func(acc, other *string) { *acc += *other },
	}
}

func countedRow(kv *operators.KV[string, operators.Counted[string]]) string {
	return fmt.Sprint(kv.Key, " ", kv.Value.First, kv.Value.Value)
}

// TestAggregateLast: at every slide-th item of a key the last size items, in the order of
// their times, with crashes; no more is kept than the next window has.
func TestAggregateLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 60)
		size, slide := rapid.IntRange(1, 6).Draw(t, "size"), rapid.IntRange(1, 6).Draw(t, "slide")
		job := operators.NewJob("last")
		in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde), "k", serde.String, byKey)
		got, report := runTimed(t, job, operators.Map(operators.AggregateLast(in, "l", size, slide, listing(), operators.InOrder()), countedRow), drawOptions(t))

		slices.SortStableFunc(items, func(a, b optest.Timed[hit]) int { return int(a.Time - b.Time) })
		want, all := []optest.Timed[string]{}, map[string][]optest.Timed[hit]{}
		for _, x := range items {
			k := x.Value.Key
			all[k] = append(all[k], x)
			n := len(all[k])
			if n%slide > 0 {
				continue
			}
			first, row := max(n-size, 0), ""
			for _, y := range all[k][first:] {
				row += fmt.Sprint(" ", y.Time, ":", y.Value.N)
			}
			want = append(want, optest.At(x.Time, fmt.Sprint(k, " ", first, row)))
		}
		require.ElementsMatch(t, want, got)
		require.Zero(t, report.Behind)
		most := 0
		for _, xs := range all { // in panes of an item, at the most
			most += min(len(xs), size)
		}
		for name, n := range report.State {
			if name != "l.count" {
				require.LessOrEqual(t, n, most, name)
			}
		}
	})
}

// A result has the time of the newest of its items, also if they come out of order.
func TestAggregateLastOutOfOrder(t *testing.T) {
	job := operators.NewJob("last")
	items := []optest.Timed[hit]{optest.At(-5, hit{"k", 1}), optest.At(-9, hit{"k", 2}), optest.At(-8, hit{"k", 3}), optest.At(-9, hit{"k", 4})}
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(100, items), hitSerde), "k", serde.String, byKey)
	got, _ := runTimed(t, job, operators.Map(operators.AggregateLast(in, "l", 2, 1, listing()), countedRow), optest.Options{})
	require.Equal(t, []optest.Timed[string]{
		optest.At(-5, "k 0 -5:1"), optest.At(-5, "k 0 -5:1 -9:2"), optest.At(-8, "k 1 -9:2 -8:3"), optest.At(-8, "k 2 -8:3 -9:4"),
	}, got)
}

func ExampleAggregateLast() {
	job := operators.NewJob("last")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	sums := operators.AggregateLast(byName, "two", 2, 1, summing(), operators.InOrder())
	show(job, sums, func(kv *operators.KV[string, operators.Counted[int64]]) string {
		return fmt.Sprint(kv.Key, " from ", kv.Value.First, ": ", kv.Value.Value)
	})
	// Output:
	// ann from 0: 1
	// ann from 0: 4
	// ann from 1: 7
	// bob from 0: 2
	// bob from 0: 7
}
