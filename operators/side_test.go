package operators_test

import (
	"fmt"
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

// lateRows are late items as rows.
func lateRows(in operators.KeyedStream[string, hit]) operators.Flow[string] {
	times := operators.Process(in, "late rows", func(c *operators.Context[string, string]) operators.Handler[hit] {
		return operators.Handler[hit]{Item: func(h *hit) { c.Emit(fmt.Sprintf("late %s %d %d", c.Key(), c.Time(), h.N), c.Time()) }}
	})
	return values(times)
}

// TestLate: every item is in a result or in the stream of late items, once, also with
// crashes: of windows the results are those of the items that are not late.
func TestLate(t *testing.T) {
	none := 0
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 40)
		lateness := rapid.SampledFrom([]int64{0, 3}).Draw(t, "lateness")
		kind := rapid.SampledFrom([]string{"windows", "panes", "in order"}).Draw(t, "kind")
		const size = 4
		win := operators.Tumbling(size * time.Millisecond)
		job := operators.NewJob("late")
		src := operators.FromSource(job, "src", oneByOne{optest.Items(1, items)}, hitSerde)
		opts := []operators.WindowOption{operators.Lateness(time.Duration(lateness) * time.Millisecond)}
		o := drawOptions(t)
		var results, late operators.Flow[string]
		switch kind {
		case "windows":
			sums := operators.AggregateWindows(operators.KeyBy(src, "k", serde.String, byKey), win, summing(), opts...)
			results, late = windowRows(sums), lateRows(operators.Late[hit](sums))
		case "panes":
			o.CommitEvery = 1 // or a pane would have several items
			sums := operators.CombineWindows(operators.PreAggregate(src, "k", serde.String, byKey, win, summing()), opts...)
			lates := operators.Late[operators.Pane[int64]](sums)
			results = windowRows(sums)
			late = lateRows(operators.MapValues(lates, func(k *string, p *operators.Pane[int64]) hit { return hit{*k, p.Acc} }).With(hitSerde))
		case "in order":
			sums := operators.Process(operators.KeyBy(src, "k", serde.String, byKey), "p", func(c *operators.Context[string, string]) operators.Handler[hit] {
				return operators.Handler[hit]{Item: func(h *hit) {
					c.Emit(fmt.Sprintf("%s [%d,%d) %d", c.Key(), c.Time(), c.Time()+1, h.N), c.Time())
				}}
			}, operators.InOrder())
			results, late = values(sums), lateRows(operators.Late[hit](sums))
		}
		rows, _ := runRows(t, job, operators.Merge("all", results, late), o)

		type window struct {
			key   string
			start int64
		}
		start := func(at int64) int64 {
			if kind == "in order" {
				return at
			}
			return at - ((at%size)+size)%size
		}
		want, got := map[window]int64{}, map[window]int64{}
		for _, x := range items {
			want[window{x.Value.Key, start(x.Time)}] += x.Value.N
		}
		lates := 0
		for _, row := range rows {
			var at, n int64
			var key string
			if rest, ok := strings.CutPrefix(row, "late "); ok {
				lates++
				key, rest = rest[:strings.Index(rest, " ")], rest[strings.Index(rest, " ")+1:]
				_, err := fmt.Sscanf(rest, "%d %d", &at, &n)
				require.NoError(t, err)
				if kind != "panes" {
					require.Contains(t, items, optest.At(at, hit{key, n}))
				}
				want[window{key, start(at)}] -= n
				continue
			}
			at0 := strings.Index(row, " [")
			var end int64
			_, err := fmt.Sscanf(row[at0:], " [%d,%d) %d", &at, &end, &n)
			require.NoError(t, err)
			if kind == "in order" {
				got[window{row[:at0], at}] += n
			} else if lateness == 0 {
				got[window{row[:at0], at}] = n
			}
		}
		if lates == 0 {
			none++
		}
		if kind != "in order" && lateness > 0 {
			return // which of a window's results is the last one, sorted rows do not tell
		}
		for w, n := range want {
			require.Equal(t, n, got[w], "%v of %q", w, rows)
		}
	})
	require.Less(t, none, 90, "hardly anything is late")
}

// The late items of sessions and of joins.
func TestLateOfProcess(t *testing.T) {
	items := []optest.Timed[hit]{sec(0, 1), sec(100, 2, "other"), sec(3, 3), sec(101, 4), sec(5, 5, "other"), sec(300, 6)}
	rows, report := oneAfterTheOther(t, items, func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
		return lateRows(operators.Late[hit](operators.AggregateSessions(in, "s", 10*time.Second, summing())))
	})
	require.Equal(t, []string{"late k 3000 3", "late other 5000 5"}, rows)
	require.Equal(t, 2, report.Late)
	rows, report = oneAfterTheOther(t, items, func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
		first := operators.FilterValues(in, func(_ *string, h *hit) bool { return h.N < 3 })
		join := operators.JoinWindows(first, in, "j", operators.Tumbling(time.Second), func(_ *string, _, _ int64, l, r *hit) string { return "" })
		return operators.Merge("all", lateRows(operators.LateRight[hit](join)),
			operators.Map(operators.LateLeft[hit](join), func(*operators.KV[string, hit]) string { return "left" }))
	})
	require.Equal(t, []string{"late k 3000 3", "late other 5000 5"}, rows)
	require.Equal(t, 2, report.Late)
	rows, _ = oneAfterTheOther(t, items, func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
		join := operators.JoinTable(in, operators.AsTable(in), "j", func(_ *string, l, _ *hit) string { return "" })
		return lateRows(operators.LateLeft[hit](join))
	})
	require.Equal(t, []string{"late k 3000 3", "late other 5000 5"}, rows)
}

// An item that a function says is late twice is in the stream once, with its own time.
func TestLateTwice(t *testing.T) {
	rows, report := oneAfterTheOther(t, []optest.Timed[hit]{sec(5, 1), sec(3, 2)}, func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
		return lateRows(operators.Late[hit](operators.Process(in, "p", func(c *operators.Context[string, string]) operators.Handler[hit] {
			return operators.Handler[hit]{Item: func(h *hit) {
				if h.N == 2 {
					c.Late()
					c.Late()
				}
			}}
		})))
	})
	require.Equal(t, []string{"late k 3000 2"}, rows)
	require.Equal(t, 2, report.Late)
}

func TestLateErrors(t *testing.T) {
	job := operators.NewJob("late")
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde), "k", serde.String, byKey)
	counts := operators.CountWindows(in, operators.Tumbling(time.Second))
	operators.Late[hit](in)
	operators.Late[string](counts)
	operators.LateLeft[hit](counts)
	operators.SideStream(counts, operators.NewSide[string]("x"))
	p := operators.Process(in, "p", func(*operators.Context[string, string]) operators.Handler[hit] { return operators.Handler[hit]{} })
	operators.ToSink(operators.SideStream(p, operators.NewSide[string]("y")), "out", nothing[operators.KV[string, string]]())
	_, err := job.Plan()
	for _, text := range []string{
		"Late: the stream does not come from an operator that has late items",
		`Late of "window": its items are no string: what is late is a operators.KeyedStream[string,`,
		`LateLeft of "window": it has 1 inputs: use Late for one`,
		`side output "x": the stream does not come from a process function`,
	} {
		require.ErrorContains(t, err, text)
	}

	job = operators.NewJob("sides")
	in = operators.KeyBy(operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde), "k", serde.String, byKey)
	p = operators.Process(in, "p", func(*operators.Context[string, string]) operators.Handler[hit] { return operators.Handler[hit]{} })
	operators.ToSink(operators.SideStream(p, operators.NewSide[string]("y")), "out", nothing[operators.KV[string, string]]())
	_, err = job.Plan()
	require.ErrorContains(t, err, `"p" has no side output "y": its setup does not call SideOutput for it`)
}

// TestSides: a function has results of three types, at items, event timers and wall timers,
// in order or not, with crashes.
func TestSides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 40)
		evens, timers := operators.NewSide[hit]("evens"), operators.NewSide[int64]("timers")
		var opts []operators.Option
		if rapid.Bool().Draw(t, "in order") {
			opts = append(opts, operators.InOrder())
		}
		job := operators.NewJob("sides")
		src := operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde)
		main := operators.Process(operators.KeyBy(src, "k", serde.String, byKey), "p", func(c *operators.Context[string, string]) operators.Handler[hit] {
			even, timer := operators.SideOutput(c, evens), operators.SideOutput(c, timers)
			unused := operators.SideOutput(c, operators.NewSide[bool]("nobody takes it"))
			return operators.Handler[hit]{
				Item: func(h *hit) {
					unused.Emit(true, c.Time())
					if h.N%2 == 0 {
						even.Emit(*h, c.Time())
					} else {
						c.Emit(fmt.Sprint("odd ", h.Key, h.N), c.Time())
					}
					c.SetEventTimer(c.Time() + 1000)
				},
				Timers: operators.Timers{OnEvent: func(at int64) { timer.Emit(at, at) }},
			}
		}, opts...)
		rows, report := runRows(t, job, operators.Merge("all", values(main),
			operators.Map(operators.SideStream(main, evens), func(kv *operators.KV[string, hit]) string { return fmt.Sprint("even ", kv.Key, kv.Value.N) }),
			operators.Map(operators.SideStream(main, timers), func(kv *operators.KV[string, int64]) string { return fmt.Sprint(kv.Key, " at ", kv.Value) }),
		), drawOptions(t))
		var want []string
		for _, x := range items {
			odd := "odd "
			if x.Value.N%2 == 0 {
				odd = "even "
			}
			want = append(want, fmt.Sprint(odd, x.Value.Key, x.Value.N))
			if at := fmt.Sprint(x.Value.Key, " at ", x.Time+1000); !slices.Contains(want, at) {
				want = append(want, at)
			}
		}
		slices.Sort(want)
		require.Equal(t, want, rows)
		require.Zero(t, report.Behind)
	})
}
