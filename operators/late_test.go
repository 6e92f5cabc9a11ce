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

// at makes a hit of key "k" (or another) at a time in seconds.
func sec(t, n int64, key ...string) optest.Timed[hit] {
	k := "k"
	if len(key) > 0 {
		k = key[0]
	}
	return optest.At(t*1000, hit{k, n})
}

// oneAfterTheOther runs one keyed job whose every item is a read and a commit of its own.
func oneAfterTheOther(t *testing.T, items []optest.Timed[hit], build func(operators.KeyedStream[string, hit]) operators.Flow[string]) ([]string, optest.Report) {
	job := operators.NewJob("one by one")
	src := operators.FromSource(job, "src", oneByOne{optest.Items(0, items)}, hitSerde)
	return runRows(t, job, build(operators.KeyBy(src, "k", serde.String, byKey)), optest.Options{CommitEvery: 1})
}

// The end of one session can be the end of another's lateness: they share a timer. A session that a
// late item extends removes its own timers only.
func TestSessionsShareATimer(t *testing.T) {
	rows, _ := oneAfterTheOther(t, []optest.Timed[hit]{
		sec(0, 1),  // ends at 10 s, forgotten at 30 s
		sec(20, 2), // ends at 30 s
		sec(5, 4),  // late: extends the first
		sec(100, 8), sec(101, 0, "x"),
	}, func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
		return windowRows(operators.AggregateSessions(in, "s", 10*time.Second, summing(), operators.Lateness(20*time.Second)))
	})
	require.Contains(t, rows, "k [20000,30000) 2")
	require.Contains(t, rows, "k [0,15000) 5")
}

// Two late items in one commit, in two panes of a window, make one result of it, or with EachLate two.
// The second result has both. Behind PreAggregate each pane is a partial result.
func TestEachLate(t *testing.T) {
	first := []string{"k [-5000,5000) 1", "k [0,10000) 1"}
	for _, each := range []bool{false, true} {
		opts := []operators.WindowOption{operators.Lateness(time.Minute)}
		want := []string{"k [-5000,5000) 3", "k [0,10000) 7", "k [5000,15000) 4"}
		if each {
			opts, want = append(opts, operators.EachLate()), []string{"k [-5000,5000) 3", "k [0,10000) 3", "k [0,10000) 7", "k [5000,15000) 4"}
		}
		for _, pre := range []bool{false, true} {
			job, win := operators.NewJob("each"), operators.Sliding(10*time.Second, 5*time.Second)
			src := operators.FromSource(job, "src", optest.Items(0, []optest.Timed[hit]{}), hitSerde)
			var sums operators.KeyedStream[string, operators.Windowed[int64]]
			if pre {
				sums = operators.CombineWindows(operators.PreAggregate(src, "k", serde.String, byKey, win, summing()), opts...)
			} else {
				sums = operators.AggregateWindows(operators.KeyBy(src, "k", serde.String, byKey), win, summing(), opts...)
			}
			operators.ToSink(windowRows(sums), "rows", operators.FuncSink(func(*operators.Batch[string]) error { return nil }))
			plan, err := job.Plan()
			require.NoError(t, err)
			d := optest.NewDriver(t, plan, optest.Options{CommitEvery: 1000})
			in, out := optest.NewInput[hit](d, "src"), optest.NewOutput[string](d, "rows")
			in.Pipe(1000, hit{"k", 1})
			d.AdvanceTo(17_000)
			require.Equal(t, first, out.Read())
			in.PipeTimed(0, optest.At(2000, hit{"k", 2}), optest.At(7000, hit{"k", 4}))
			require.Equal(t, want, out.Read(), "each %v, pre-aggregated %v", each, pre)
		}
	}
	for _, opts := range [][]operators.WindowOption{{}, {operators.Lateness(time.Second), operators.Emit(operators.Eager)}} {
		job := operators.NewJob("refused")
		src := operators.FromSource(job, "src", optest.Items(0, []optest.Timed[hit]{}), hitSerde)
		operators.CountWindows(operators.KeyBy(src, "k", serde.String, byKey), operators.Tumbling(time.Second), append(opts, operators.EachLate())...)
		_, err := job.Plan()
		require.ErrorContains(t, err, "EachLate needs a Lateness, and results that are Final")
	}
}

// An item at the very end of its session's lateness is too late; a millisecond before, it counts.
func TestSessionsEndOfLateness(t *testing.T) {
	for _, x := range []struct{ watermark, late int64 }{{29_999, 0}, {30_000, 1}, {30_001, 1}} {
		_, report := oneAfterTheOther(t, []optest.Timed[hit]{
			sec(0, 1), // ends at 10 s, forgotten at 30 s
			optest.At(x.watermark, hit{"other", 1}),
			optest.At(0, hit{"k", 1}),
		}, func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
			return windowRows(operators.AggregateSessions(in, "s", 10*time.Second, summing(), operators.Lateness(20*time.Second)))
		})
		require.EqualValues(t, x.late, report.Late, "watermark %d", x.watermark)
	}
}

// The result of a late item is not late itself.
func TestLateResultsAreNotLate(t *testing.T) {
	items := []optest.Timed[hit]{sec(0, 1), sec(50, 1, "other"), sec(100, 1, "other"), sec(3, 1), sec(5, 1), sec(200, 1, "other")}
	for name, build := range map[string]func(in operators.KeyedStream[string, hit]) operators.Flow[string]{
		"process": func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
			return values(operators.Process(in, "p", func(c *operators.Context[string, string]) operators.Handler[hit] {
				return operators.Handler[hit]{Item: func(h *hit) { c.Emit(fmt.Sprint(h.N), c.Time()) }}
			}))
		},
		"sessions": func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
			return windowRows(operators.AggregateSessions(in, "s", 10*time.Second, summing(), operators.Lateness(time.Hour)))
		},
		"windows": func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
			return windowRows(operators.CountWindows(in, operators.Tumbling(10*time.Second), operators.Lateness(time.Hour)))
		},
		"table": func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
			return operators.Map(operators.Count(in), func(c *operators.Change[string, int64]) string { return fmt.Sprint(c.Key, c.Value) })
		},
		"join": func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
			return values(operators.JoinStreams(in, in, "j", operators.Forever, func(_ *string, l, r *hit) string { return fmt.Sprint(l.N, r.N) }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			job, out := operators.NewJob("late"), optest.Collect[string](nil)
			src := operators.FromSource(job, "src", oneByOne{optest.Items(0, items)}, hitSerde)
			in := operators.KeyBy(src, "k", serde.String, byKey)
			operators.ToSink(build(in), "out", out)
			plan, err := job.Plan()
			require.NoError(t, err)
			_, err = optest.Run(plan, optest.Options{CommitEvery: 1})
			require.NoError(t, err)
			require.NotEmpty(t, out.Times)
			require.IsNonDecreasing(t, out.Times, "the late items' results have their own times")
		})
	}
}

// An item that is joined is not counted as late, whatever the watermark.
func TestJoinedIsNotLate(t *testing.T) {
	l := []optest.Timed[hit]{optest.At(120, hit{"k", 1}), optest.At(85, hit{"k", 2})}
	r := []optest.Timed[hit]{optest.At(92, hit{"k", 3}), optest.At(101, hit{"z", 0}), optest.At(130, hit{"z", 0})}
	joined, late := 0, 0
	for seed := range uint64(200) {
		job := operators.NewJob("j")
		ls := operators.KeyBy(operators.FromSource(job, "l", oneByOne{optest.Items(0, l)}, hitSerde), "lk", serde.String, byKey)
		rs := operators.KeyBy(operators.FromSource(job, "r", oneByOne{optest.Items(0, r)}, hitSerde), "rk", serde.String, byKey)
		rows, report := runRows(t, job, values(operators.JoinStreams(ls, rs, "j", 10*time.Millisecond,
			func(_ *string, a, b *hit) string { return fmt.Sprint(a.N, b.N) })), optest.Options{Seed: seed, CommitEvery: 1})
		found := slices.Contains(rows, "2 3")
		require.Equal(t, !found, report.Late > 0, "seed %d: rows %q, late %d", seed, rows, report.Late)
		if found {
			joined++
		} else {
			late++
		}
	}
	require.NotZero(t, joined)
	require.NotZero(t, late)
}
