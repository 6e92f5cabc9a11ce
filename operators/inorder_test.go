package operators_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// sided is an item of one of two sides.
type sided struct {
	t    int64
	left bool
	hit
}

// byTime sorts the items of two sides into the order in which a function with InOrder receives
// them.
func byTime(left, right []optest.Timed[hit]) (all []sided) {
	for _, x := range right {
		all = append(all, sided{x.Time, false, x.Value})
	}
	for _, x := range left {
		all = append(all, sided{x.Time, true, x.Value})
	}
	slices.SortStableFunc(all, func(x, y sided) int { return cmp.Compare(x.t, y.t) })
	return all
}

// order makes rows that reveal every change of order: each has a number that depends on all of the
// key's earlier rows.
type order struct{ seen map[string]int64 }

func (o *order) row(key, what string, t int64) string {
	o.seen[key] = o.seen[key]*7 + t + int64(len(what))
	return fmt.Sprint(key, " ", what, " ", t, " ", o.seen[key])
}

// TestInOrder: a function of two sides, with timers and InOrder, does the same as a loop over the
// items by time, whatever the order in which they come.
func TestInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job, a, b, left, right := twoSides(t)
		after := rapid.SampledFrom([]int64{0, 1, 5}).Draw(t, "timer after")
		out := operators.Process2(left, right, "ordered", func(c *operators.Context[string, string]) operators.Handler2[hit, hit] {
			seen := operators.NewValue(c, "seen", serde.Int64)
			emit := func(what string) {
				n := seen.Upsert()
				*n = *n*7 + c.Time() + int64(len(what))
				if c.Watermark() != c.Time() {
					what = "the watermark shows: " + what
				}
				c.Emit(fmt.Sprint(c.Key(), " ", what, " ", c.Time(), " ", *n), c.Time()-3)
			}
			return operators.Handler2[hit, hit]{
				Left:  func(h *hit) { emit(fmt.Sprint("left", h.N)) },
				Right: func(h *hit) { emit(fmt.Sprint("right", h.N)); c.SetEventTimer(c.Time() + after) },
				Timers: operators.Timers{
					OnEvent: func(int64) { emit("timer") },
					OnTime:  func(int64) { emit("over") },
				},
			}
		}, operators.InOrder())

		var want []string
		all := byTime(a, b)
		for _, key := range []string{"a", "b", "c", "dd", ""} {
			var mine []sided
			for _, x := range all {
				if x.Key == key {
					mine = append(mine, x)
				}
			}
			o := order{map[string]int64{}}
			add := func(what string, at int64) {
				want = append(want, fmt.Sprint(o.row(key, what, at), " at ", at))
			}
			var timers []int64
			fire := func(upTo int64) {
				slices.Sort(timers)
				for timers = slices.Compact(timers); len(timers) > 0 && timers[0] <= upTo; timers = timers[1:] {
					add("timer", timers[0])
				}
			}
			for i, x := range mine {
				if i == 0 || mine[i-1].t < x.t {
					fire(x.t)
				}
				if x.left {
					add(fmt.Sprint("left", x.N), x.t)
				} else {
					add(fmt.Sprint("right", x.N), x.t)
					timers = append(timers, x.t+max(after, 1))
				}
				if i+1 == len(mine) || mine[i+1].t > x.t {
					add("over", x.t)
				}
			}
			fire(operators.MaxTime)
		}
		rows := optest.Collect[string](nil)
		operators.ToSink(values(out), "out", rows)
		plan, err := job.Plan()
		require.NoError(t, err)
		report, err := optest.Run(plan, drawOptions(t))
		require.NoError(t, err)
		var got []string
		for i, row := range rows.Rows {
			got = append(got, fmt.Sprint(row, " at ", rows.Times[i]))
		}
		slices.Sort(want)
		slices.Sort(got)
		require.ElementsMatch(t, want, got)
		require.Zero(t, report.Late)
		require.Zero(t, report.Behind)
		for name, n := range report.State {
			require.Equal(t, "ordered.seen", name, "%d entries", n)
		}
	})
}

// An item behind the watermark goes to Late.
func TestInOrderLate(t *testing.T) {
	rows, report := oneAfterTheOther(t, []optest.Timed[hit]{sec(1, 1), sec(9, 2), sec(9, 3), sec(5, 4), sec(20, 5)},
		func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
			return values(operators.Process(in, "p", func(c *operators.Context[string, string]) operators.Handler[hit] {
				return operators.Handler[hit]{
					Item: func(h *hit) { c.Emit(fmt.Sprint(h.N), c.Time()) },
					Late: func(h *hit) { c.Emit(fmt.Sprint("late ", h.N, " ", c.Time(), " ", c.Watermark()), c.Time()) },
				}
			}, operators.InOrder()))
		})
	require.Equal(t, []string{"1", "2", "3", "5", "late 4 5000 9000"}, rows)
	require.Equal(t, 1, report.Late)
}

// TestAggregateInOrder: the table has, at each time at which a key has items, the fold of
// all items up to it in the order of time; so a join with it as of any time is right.
func TestAggregateInOrder(t *testing.T) {
	text := operators.Aggregator[hit, []int64]{
		Acc: serde.Slice(serde.Int64),
		Add: func(acc *[]int64, h *hit, _ int64) { *acc = append(*acc, h.N) },
	}
	rapid.Check(t, func(t *rapid.T) {
		job, a, b, left, right := twoSides(t)
		table := operators.Aggregate(right, text, operators.InOrder())
		joined := operators.JoinTable(left, table, "join", func(k *string, h *hit, all *[]int64) string { return fmt.Sprint(*k, h.N, *all) })
		changes := operators.Map(table, func(c *operators.Change[string, []int64]) string { return fmt.Sprint("table ", c.Key, c.Value) })
		var want []string
		upTo := func(key string, t int64) (ns []int64) {
			for _, x := range byTime(nil, b) {
				if x.Key == key && x.t <= t {
					ns = append(ns, x.N)
				}
			}
			return ns
		}
		for _, x := range a {
			if ns := upTo(x.Value.Key, x.Time); ns != nil {
				want = append(want, fmt.Sprint(x.Value.Key, x.Value.N, ns))
			}
		}
		type at struct {
			key string
			t   int64
		}
		seen := map[at]bool{}
		for _, x := range b {
			if k := (at{x.Value.Key, x.Time}); !seen[k] {
				seen[k] = true
				want = append(want, fmt.Sprint("table ", x.Value.Key, upTo(x.Value.Key, x.Time)))
			}
		}
		got, report := runRows(t, job, operators.Merge("both", values(joined), changes), drawOptions(t))
		require.ElementsMatch(t, want, got)
		require.Zero(t, report.Late)
		require.Zero(t, report.Behind)
	})
}

// A late item is folded when it comes.
func TestAggregateInOrderLate(t *testing.T) {
	rows, report := oneAfterTheOther(t, []optest.Timed[hit]{sec(1, 1), sec(9, 2), sec(5, 4), sec(20, 5)},
		func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
			return operators.Map(operators.Aggregate(in, summing(), operators.InOrder()), func(c *operators.Change[string, int64]) string { return fmt.Sprint(c.Value) })
		})
	require.ElementsMatch(t, []string{"1", "5", "7", "12"}, rows) // the late 4 before the 2 that waits until 9 s have passed
	require.Equal(t, 1, report.Late)
}

// A join as of a time requires a table whose value at a time is a function of the data.
func TestJoinWithWhatVaries(t *testing.T) {
	for name, build := range map[string]func(in operators.KeyedStream[string, hit]) operators.Table[string, int64]{
		"aggregate of k emits once a commit": func(in operators.KeyedStream[string, hit]) operators.Table[string, int64] { return operators.Count(in) },
		`join "tables" takes the Latest`: func(in operators.KeyedStream[string, hit]) operators.Table[string, int64] {
			return operators.JoinTables(operators.AsTable(in), operators.AsTable(in), "tables", func(_ *string, l, r *hit) int64 { return l.N + r.N }, operators.Latest())
		},
		"windows of \"k\" are Eager": func(in operators.KeyedStream[string, hit]) operators.Table[string, int64] {
			w := operators.CountWindows(in, operators.Tumbling(time.Second), operators.Emit(operators.Eager))
			return operators.AsTable(operators.MapValues(w, func(_ *string, w *operators.Windowed[int64]) int64 { return w.Value }))
		},
	} {
		plan := func(opts ...operators.Option) error {
			job := operators.NewJob("varies")
			in := operators.KeyBy(operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde), "k", serde.String, byKey)
			table := operators.FilterTable(build(in), func(_ *string, n *int64) bool { return *n > 0 })
			operators.ToSink(values(operators.JoinTable(in, table, "join", func(_ *string, h *hit, n *int64) string { return "" }, opts...)), "out", nothing[string]())
			_, err := job.Plan()
			return err
		}
		require.ErrorContains(t, plan(), name)
		require.NoError(t, plan(operators.Latest()))
		require.ErrorContains(t, plan(operators.InOrder()), `join "join" does not take the option InOrder`)
	}
}
