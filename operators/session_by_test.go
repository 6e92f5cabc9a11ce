package operators_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// ownGap is an item's gap: 1 to 9 ms.
func ownGap(h *hit) time.Duration { return time.Duration(h.N+4) * time.Millisecond }

// TestSessionsBy: sessions with a gap by item are the unions of the items' intervals that
// meet, with crashes.
func TestSessionsBy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 50)
		job := operators.NewJob("sessions")
		in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde), "k", serde.String, byKey)
		rows, report := runRows(t, job, windowRows(operators.AggregateSessionsBy(in, "s", ownGap, summing())), drawOptions(t))
		require.Zero(t, report.Late)
		requireNoState(t, report, false)

		slices.SortStableFunc(items, func(a, b optest.Timed[hit]) int { return int(a.Time - b.Time) })
		type session struct{ first, end, sum int64 }
		all := map[string][]*session{}
		for _, x := range items {
			key, end := x.Value.Key, x.Time+ownGap(&x.Value).Milliseconds()
			if s := all[key]; len(s) > 0 && x.Time < s[len(s)-1].end {
				last := s[len(s)-1]
				last.end, last.sum = max(last.end, end), last.sum+x.Value.N
			} else {
				all[key] = append(s, &session{x.Time, end, x.Value.N})
			}
		}
		var want []string
		for key, ss := range all {
			for _, s := range ss {
				want = append(want, fmt.Sprintf("%s [%d,%d) %d", key, s.first, s.end, s.sum))
			}
		}
		slices.Sort(want)
		require.Equal(t, want, rows)
	})
}

// TestAggregateEvery: every n items of a key in the order of their times, with crashes.
func TestAggregateEvery(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 50)
		n := rapid.IntRange(1, 4).Draw(t, "n")
		job := operators.NewJob("every")
		in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde), "k", serde.String, byKey)
		every := operators.AggregateEvery(in, "e", n, operators.Aggregator[hit, string]{
			Add: func(acc *string, h *hit, at int64) { *acc += fmt.Sprint(" ", at, ":", h.N) },
		}, operators.InOrder())
		rows, _ := runRows(t, job, operators.Map(every, func(kv *operators.KV[string, operators.Counted[string]]) string {
			return kv.Key + strconv.Itoa(int(kv.Value.First)) + kv.Value.Value
		}), drawOptions(t))

		slices.SortStableFunc(items, func(a, b optest.Timed[hit]) int { return int(a.Time - b.Time) })
		var want []string
		count, open := map[string]int{}, map[string]string{}
		for _, x := range items {
			k := x.Value.Key
			open[k] += fmt.Sprint(" ", x.Time, ":", x.Value.N)
			if count[k]++; count[k]%n == 0 {
				want = append(want, k+strconv.Itoa(count[k]-n)+open[k])
				open[k] = ""
			}
		}
		slices.Sort(want)
		require.Equal(t, want, rows)
	})
}

// An item whose gap is less than a millisecond fails.
func TestSessionsByWithoutAGap(t *testing.T) {
	for _, gap := range []time.Duration{0, time.Millisecond - 1, -time.Second} {
		require.Panics(t, func() {
			_, _ = oneAfterTheOther(t, []optest.Timed[hit]{sec(1, 1)}, func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
				return windowRows(operators.AggregateSessionsBy(in, "s", func(*hit) time.Duration { return gap }, summing()))
			})
		}, gap)
	}
}

// A result has the time of the newest of its items, also if they come out of order.
func TestAggregateEveryOutOfOrder(t *testing.T) {
	job := operators.NewJob("every")
	items := []optest.Timed[hit]{optest.At(-5, hit{"k", 1}), optest.At(-9, hit{"k", 2}), optest.At(-8, hit{"k", 3}), optest.At(-7, hit{"k", 4})}
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(100, items), hitSerde), "k", serde.String, byKey)
	got, _ := runTimed(t, job, operators.Map(operators.AggregateEvery(in, "e", 2, listing()), countedRow), optest.Options{})
	require.Equal(t, []optest.Timed[string]{optest.At(-5, "k 0 -5:1 -9:2"), optest.At(-7, "k 2 -8:3 -7:4")}, got)
}

func ExampleAggregateSessionsBy() {
	job := operators.NewJob("sessions")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	gap := func(h *hit) time.Duration { return time.Duration(4*h.N) * time.Millisecond }
	show(job, operators.AggregateSessionsBy(byName, "s", gap, operators.Counting[hit]()), showWindow)
	// Output:
	// [1, 28) ann 3
	// [2, 10) bob 1
	// [31, 51) bob 1
}

func ExampleAggregateEvery() {
	job := operators.NewJob("every")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	sums := operators.AggregateEvery(byName, "two", 2, operators.Aggregator[hit, int64]{
		Add: func(acc *int64, h *hit, _ int64) { *acc += h.N },
	}, operators.InOrder())
	show(job, sums, func(kv *operators.KV[string, operators.Counted[int64]]) string {
		return fmt.Sprint(kv.Key, " from ", kv.Value.First, ": ", kv.Value.Value)
	})
	// Output:
	// ann from 0: 4
	// bob from 0: 7
}
