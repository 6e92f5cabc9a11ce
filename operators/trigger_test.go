package operators_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// triggeredRow is a result of TestTriggers; those of a global window have no bounds.
func triggeredRow(key string, start, end int64, list string) string {
	if end == operators.MaxTime {
		return fmt.Sprint(key, " all", list)
	}
	return fmt.Sprint(key, " [", start, ",", end, ")", list)
}

// TestTriggers: the results of windows with a trigger are those of a walk through the items
// in the order of their times, with crashes.
func TestTriggers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 50)
		size := rapid.SampledFrom([]int64{0, 4, 10}).Draw(t, "size") // 0: global
		slide := rapid.SampledFrom([]int64{4, 5, 10, 12}).Draw(t, "slide")
		count := rapid.IntRange(0, 3).Draw(t, "count")
		every := rapid.SampledFrom([]int64{1, 3, 5}).Draw(t, "every")
		win, trigger := operators.Global(), operators.EveryEventTime(time.Duration(every)*time.Millisecond)
		if size > 0 {
			win = operators.Sliding(time.Duration(size)*time.Millisecond, time.Duration(slide)*time.Millisecond)
		}
		if count > 0 {
			trigger = operators.EveryCount(count)
		}
		var opts []operators.Option
		discarding := rapid.Bool().Draw(t, "discarding")
		if discarding {
			opts = append(opts, operators.Discarding())
		}
		job := operators.NewJob("triggers")
		in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde), "k", serde.String, byKey)
		out := operators.AggregateTriggered(in, "t", win, operators.Aggregator[hit, string]{
			Add: func(acc *string, h *hit, _ int64) { *acc += fmt.Sprint(" ", h.N) },
		}, trigger, opts...)
		rows, report := runTimed(t, job, operators.Map(out, func(kv *operators.KV[string, operators.Windowed[string]]) string {
			return triggeredRow(kv.Key, kv.Value.Start, kv.Value.End, kv.Value.Value)
		}), drawOptions(t))
		require.Zero(t, report.Behind)
		requireNoState(t, report, false)

		slices.SortStableFunc(items, func(a, b optest.Timed[hit]) int { return int(a.Time - b.Time) })
		type window struct {
			key string
			end int64
		}
		members := map[window][]optest.Timed[hit]{}
		for _, x := range items {
			ends := []int64{operators.MaxTime}
			if size > 0 {
				ends = windowsOf(x.Time, size, slide)
			}
			for _, end := range ends {
				w := window{x.Value.Key, end}
				members[w] = append(members[w], x)
			}
		}
		want := []optest.Timed[string]{}
		for w, xs := range members {
			list := ""
			for i, x := range xs {
				list += fmt.Sprint(" ", x.Value.N)
				next := w.end
				if i+1 < len(xs) {
					next = xs[i+1].Time
				}
				early, at := false, x.Time
				if count > 0 {
					early = (i+1)%count == 0
				} else { // a multiple of every behind the item, not behind the next, before the end
					at = x.Time + every - ((x.Time%every)+every)%every
					early = at <= next && at < w.end
					at--
				}
				if early {
					want = append(want, optest.At(at, triggeredRow(w.key, w.end-size, w.end, list)))
					if discarding {
						list = ""
					}
				}
			}
			if list != "" {
				want = append(want, optest.At(w.end-1, triggeredRow(w.key, w.end-size, w.end, list)))
			}
		}
		require.ElementsMatch(t, want, rows)
	})
}

// EveryWallTime: what comes early depends on the clock; the last result of a window has all
// of its items, also with crashes.
func TestWallTrigger(t *testing.T) {
	early := 0
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 50)
		job := operators.NewJob("wall")
		in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde), "k", serde.String, byKey)
		count := operators.AggregateTriggered(in, "t", operators.Tumbling(10*time.Millisecond), operators.Counting[hit](), operators.EveryWallTime(3*time.Millisecond))
		rows, report := runRows(t, job, windowRows(count), drawOptions(t))
		require.Zero(t, report.Behind)
		require.Zero(t, report.State["t.windows"]) // timers of the wall clock may be left
		most, got := map[string]int64{}, map[string]int64{}
		for _, x := range items {
			end := windowsOf(x.Time, 10, 10)[0]
			most[fmt.Sprintf("%q [%d,%d)", x.Value.Key, end-10, end)]++
		}
		for _, row := range rows {
			var key string
			var start, end, n int64
			at := slices.Index([]byte(row), '[')
			key = row[:at-1]
			_, err := fmt.Sscanf(row[at:], "[%d,%d) %d", &start, &end, &n)
			require.NoError(t, err)
			w := fmt.Sprintf("%q [%d,%d)", key, start, end)
			got[w] = max(got[w], n)
		}
		require.Equal(t, most, got)
		early += len(rows) - len(most)
	})
	require.NotZero(t, early)
}

// With a trigger of the wall clock a window with one item has its early result too, and an
// item is late when all its windows are closed.
func TestWallTriggerOfOneItem(t *testing.T) {
	items := []optest.Timed[hit]{sec(0, 7)}
	for range 30 { // a step, and a millisecond, each
		items = append(items, sec(1, 0, "x"))
	}
	items = append(items, sec(9, 1, "y"), sec(10, 1, "z"), sec(9, 1), sec(20, 1, "z"))
	rows, report := oneAfterTheOther(t, items, func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
		return windowRows(operators.AggregateTriggered(in, "t", operators.Tumbling(10*time.Second), summing(), operators.EveryWallTime(3*time.Millisecond)))
	})
	mine := slices.DeleteFunc(rows, func(row string) bool { return row[0] != 'k' })
	require.Equal(t, []string{"k [0,10000) 7", "k [0,10000) 7"}, mine)
	require.Equal(t, 1, report.Late)
}

// TestSuppressBound: a task holds no more than HoldAtMost, whatever crashes, and emits first
// what is due first, by a walk through the items as one task takes them.
func TestSuppressBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 50)
		span := rapid.SampledFrom([]int64{2, 9, 50}).Draw(t, "span")
		most := rapid.IntRange(5, 25).Draw(t, "most")
		job := operators.NewJob("bound")
		in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde), "k", serde.String, byKey)
		o := drawOptions(t)
		o.Parallelism = 1
		rows, _ := runRows(t, job, operators.Map(operators.Suppress(in, "s", time.Duration(span)*time.Millisecond, operators.HoldAtMost(most)),
			func(kv *operators.KV[string, hit]) string { return fmt.Sprint(kv.Key, kv.Value.N) }), o)

		order := func(t1, t2 int64, a, b string) int { // as timers fire
			return cmp.Or(cmp.Compare(t1, t2), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
		}
		slices.SortStableFunc(items, func(a, b optest.Timed[hit]) int { return order(a.Time, b.Time, a.Value.Key, b.Value.Key) })
		type held struct{ due, n int64 }
		var want []string
		keys, total := map[string]held{}, 0
		bytes := func(key string) int { return 2*(1+len(key)) + 1 } // twice with its length, and N
		emit := func(key string) {
			want = append(want, fmt.Sprint(key, keys[key].n))
			delete(keys, key)
			total -= bytes(key)
		}
		for _, x := range items {
			for key, h := range keys {
				if h.due <= x.Time {
					emit(key)
				}
			}
			k := x.Value.Key
			h, ok := keys[k]
			if !ok {
				h.due = x.Time + span
				total += bytes(k)
			}
			h.n = x.Value.N
			for keys[k] = h; total > most; {
				emit(slices.MinFunc(slices.Collect(maps.Keys(keys)), func(a, b string) int { return order(keys[a].due, keys[b].due, a, b) }))
			}
		}
		for k := range keys {
			emit(k)
		}
		slices.Sort(want)
		require.Equal(t, want, rows)
	})
}

// TestSuppress: of a key's items the last in each time span comes out, by a walk through the
// items in the order of their times, with crashes; with a bound at least the last.
func TestSuppress(t *testing.T) {
	early := 0
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 50)
		span := rapid.SampledFrom([]int64{1, 4, 50}).Draw(t, "span")
		most := rapid.SampledFrom([]int{0, 0, 1, 6, 20}).Draw(t, "most")
		var opts []operators.Option
		if most > 0 {
			opts = append(opts, operators.HoldAtMost(most))
		}
		job := operators.NewJob("suppress")
		in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde), "k", serde.String, byKey)
		o := drawOptions(t)
		o.State = rapid.SampledFrom([]optest.Place{optest.InMemory, optest.OnDisk}).Draw(t, "place")
		rows, report := runRows(t, job, operators.Map(operators.Suppress(in, "s", time.Duration(span)*time.Millisecond, opts...),
			func(kv *operators.KV[string, hit]) string { return fmt.Sprint(kv.Key, kv.Value.N) }), o)
		require.Zero(t, report.Behind)
		requireNoState(t, report, false)

		slices.SortStableFunc(items, func(a, b optest.Timed[hit]) int { return int(a.Time - b.Time) })
		type held struct{ due, n int64 }
		var want []string
		keys := map[string]*held{}
		for _, x := range items {
			h := keys[x.Value.Key]
			if h != nil && h.due <= x.Time {
				want = append(want, fmt.Sprint(x.Value.Key, h.n))
				h = nil
			}
			if h == nil {
				h = &held{due: x.Time + span}
				keys[x.Value.Key] = h
			}
			h.n = x.Value.N
		}
		for k, h := range keys {
			want = append(want, fmt.Sprint(k, h.n))
		}
		slices.Sort(want)
		if most == 0 {
			require.Equal(t, want, rows)
			return
		}
		for k, h := range keys {
			require.Contains(t, rows, fmt.Sprint(k, h.n))
		}
		if most == 1 { // nothing is held
			require.Len(t, rows, len(items))
		}
		early += len(rows) - len(want)
	})
	require.NotZero(t, early)
}

func TestTriggerErrors(t *testing.T) {
	job := operators.NewJob("triggers")
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde), "k", serde.String, byKey)
	operators.AggregateTriggered(in, "a", operators.Global(), summing(), operators.Trigger{})
	operators.AggregateTriggered(in, "b", operators.Global(), summing(), operators.EveryCount(0))
	operators.AggregateTriggered(in, "c", operators.Windows{}, summing(), operators.EveryWallTime(time.Microsecond))
	operators.AggregateWindows(in, operators.Global(), summing())
	operators.Suppress(in, "d", 0, operators.HoldAtMost(0), operators.Latest())
	operators.AggregateEvery(in, "e", 0, summing())
	operators.AggregateLast(in, "f", 1, 0, operators.Aggregator[hit, int64]{Add: summing().Add})
	operators.AggregateTriggered(in, "g", operators.Global(), summing(), operators.EveryCount(1), operators.InOrder())
	_, err := job.Plan()
	for _, text := range []string{
		`triggered windows "a": no trigger given`,
		`triggered windows "b": a trigger at every 0 items`,
		`triggered windows "c": a trigger every 1µs: not a positive whole number of milliseconds`,
		`triggered windows "c": no windows given`,
		"global windows of \"k\": a global window has results by a trigger only",
		`suppress "d": 0s is not a positive whole number of milliseconds`,
		`suppress "d": HoldAtMost 0 bytes`,
		`suppress "d" does not take the option Latest`,
		`count windows "e": of 0 items`,
		`sliding count windows "f": of 1 items every 0`,
		`sliding count windows "f": the aggregator has no Merge`,
		`triggered windows "g" does not take the option InOrder`,
	} {
		require.ErrorContains(t, err, text)
	}
}

func ExampleAggregateTriggered() {
	job := operators.NewJob("triggered")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	counts := operators.AggregateTriggered(byName, "t", operators.Tumbling(20*time.Millisecond), operators.Counting[hit](),
		operators.EveryEventTime(5*time.Millisecond))
	show(job, counts, showWindow)
	// Output:
	// [0, 20) ann 2
	// [0, 20) ann 3
	// [0, 20) ann 3
	// [0, 20) bob 1
	// [0, 20) bob 1
	// [20, 40) bob 1
	// [20, 40) bob 1
}

// ExampleDiscarding: each result has the items since the one before.
func ExampleDiscarding() {
	job := operators.NewJob("discarding")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	counts := operators.AggregateTriggered(byName, "t", operators.Tumbling(20*time.Millisecond), operators.Counting[hit](),
		operators.EveryEventTime(5*time.Millisecond), operators.Discarding())
	show(job, counts, showWindow)
	// Output:
	// [0, 20) ann 1
	// [0, 20) ann 2
	// [0, 20) bob 1
	// [20, 40) bob 1
}

func ExampleGlobal() {
	job := operators.NewJob("global")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	counts := operators.AggregateTriggered(byName, "t", operators.Global(), operators.Counting[hit](), operators.EveryCount(2))
	show(job, counts, func(kv *operators.KV[string, operators.Windowed[int64]]) string {
		return fmt.Sprint(kv.Key, " ", kv.Value.Value)
	})
	// Output:
	// ann 2
	// ann 3
	// bob 2
	// bob 2
}

func ExampleSuppress() {
	job := operators.NewJob("suppress")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	show(job, operators.Suppress(byName, "s", 10*time.Millisecond), func(kv *operators.KV[string, hit]) string { return showHit(&kv.Value) })
	// Output:
	// ann 3
	// ann 4
	// bob 2
	// bob 5
}
