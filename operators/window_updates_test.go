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

// window is a window of a key, in the tests of updates.
type window struct {
	key        string
	start, end int64
}

type windowUpdate = operators.KV[string, operators.Update[operators.Windowed[int64]]]

// drawWindows draws an operator with windows, and returns its results and what those of all
// windows are in the end, by a loop over the items. No item is too late for it.
func drawWindows(t *rapid.T, job *operators.Job, items []optest.Timed[hit]) (_ operators.KeyedStream[string, operators.Windowed[int64]], want map[window]int64, lateness bool) {
	kind := rapid.SampledFrom([]string{"windows", "panes", "sessions", "sessions by item", "trigger", "wall trigger"}).Draw(t, "kind")
	triggered := strings.HasSuffix(kind, "trigger")
	delay := int64(disorder)
	var opts []operators.WindowOption
	if !triggered && rapid.Bool().Draw(t, "late items") {
		delay, lateness = rapid.Int64Range(0, 2).Draw(t, "delay"), true
		opts = append(opts, operators.Lateness(disorder*time.Millisecond))
	}
	if rapid.Bool().Draw(t, "eager") {
		opts = append(opts, operators.Emit(operators.Eager))
	}
	src := operators.FromSource(job, "src", optest.Items(delay, items), hitSerde)
	size := rapid.SampledFrom([]int64{4, 10, 20}).Draw(t, "size")
	slide := rapid.SampledFrom([]int64{4, 5, 10}).Draw(t, "slide")
	win := operators.Sliding(time.Duration(size)*time.Millisecond, time.Duration(slide)*time.Millisecond)
	want = map[window]int64{}
	if strings.HasPrefix(kind, "sessions") {
		gap := func(*hit) time.Duration { return time.Duration(slide) * time.Millisecond }
		if kind == "sessions by item" {
			gap = ownGap
		}
		ordered := slices.Clone(items)
		slices.SortStableFunc(ordered, func(a, b optest.Timed[hit]) int { return int(a.Time - b.Time) })
		last := map[string]window{}
		for _, x := range ordered {
			end := x.Time + gap(&x.Value).Milliseconds()
			w, ok := last[x.Value.Key]
			sum := x.Value.N
			if ok && x.Time < w.end {
				sum += want[w]
				delete(want, w)
				w.end = max(w.end, end)
			} else {
				w = window{x.Value.Key, x.Time, end}
			}
			last[x.Value.Key], want[w] = w, sum
		}
		in := operators.KeyBy(src, "k", serde.String, byKey)
		if kind == "sessions" {
			return operators.AggregateSessions(in, "w", gap(nil), summing(), opts...), want, lateness
		}
		return operators.AggregateSessionsBy(in, "w", gap, summing(), opts...), want, lateness
	}
	for _, x := range items {
		for _, end := range windowsOf(x.Time, size, slide) {
			want[window{x.Value.Key, end - size, end}] += x.Value.N
		}
	}
	if kind == "panes" {
		return operators.CombineWindows(operators.PreAggregate(src, "k", serde.String, byKey, win, summing()), opts...), want, lateness
	}
	in := operators.KeyBy(src, "k", serde.String, byKey)
	switch kind {
	case "trigger":
		return operators.AggregateTriggered(in, "w", win, summing(), operators.EveryEventTime(3*time.Millisecond)), want, lateness
	case "wall trigger":
		return operators.AggregateTriggered(in, "w", win, summing(), operators.EveryWallTime(2*time.Millisecond)), want, lateness
	}
	return operators.AggregateWindows(in, win, summing(), opts...), want, lateness
}

// TestWindowUpdates: the updates of windows, applied one after the other, fit what there is
// and leave what a loop over the items makes; an aggregate of them has each window once. All
// with crashes, on disk and in memory.
func TestWindowUpdates(t *testing.T) {
	seen := map[operators.Kind]int{}
	rapid.Check(t, func(t *rapid.T) {
		job := operators.NewJob("updates")
		results, want, lateness := drawWindows(t, job, drawHits(t, "items", 50))
		updates := operators.WindowUpdates(results, "updates")
		out := optest.Collect(func(kv *windowUpdate) windowUpdate {
			kv.Key = strings.Clone(kv.Key)
			return *kv
		})
		operators.ToSink(updates, "updates-out", out)
		bySum := operators.GroupUpdates(updates, "by-sum", serde.Int64, func(_ *string, w *operators.Windowed[int64]) int64 { return w.Value & 3 })
		windows := operators.AggregateUpdates(bySum, operators.Subtractor[operators.Windowed[int64], int64]{
			Add:      func(n *int64, w *operators.Windowed[int64]) { *n += w.Start },
			Subtract: func(n *int64, w *operators.Windowed[int64]) { *n -= w.Start },
		})
		groups := optest.Collect[operators.Change[int64, int64]](nil)
		operators.ToSink(windows, "groups-out", groups)
		plan, err := job.Plan()
		require.NoError(t, err)
		report, err := optest.Run(plan, drawOptions(t))
		require.NoError(t, err)
		require.Zero(t, report.Late)
		if !lateness { // or items are behind the watermark
			require.Zero(t, report.Behind)
		}

		got, times := map[window]int64{}, map[window]int64{}
		before := map[string]*windowUpdate{} // of a key, if it is an UpdateBefore
		for i := range out.Rows {
			kv := &out.Rows[i]
			u := kv.Value
			w := window{kv.Key, u.Value.Start, u.Value.End}
			value, there := got[w]
			require.Equal(t, u.Kind != operators.Insert && u.Kind != operators.UpdateAfter, there, "%v of %v", u.Kind, w)
			require.Equal(t, u.Kind == operators.UpdateAfter, before[kv.Key] != nil, "%v behind %v", kv, before[kv.Key])
			if b := before[kv.Key]; b != nil {
				require.Equal(t, b.Value.Value.End, w.end)
			}
			if last, ok := times[w]; ok {
				require.GreaterOrEqual(t, out.Times[i], last)
			}
			times[w], before[kv.Key] = out.Times[i], nil
			seen[u.Kind]++
			if u.Kind.Adds() {
				got[w] = u.Value.Value
				continue
			}
			require.Equal(t, value, u.Value.Value)
			if delete(got, w); u.Kind == operators.UpdateBefore {
				before[kv.Key] = kv
			}
		}
		require.Equal(t, want, got)

		sums := map[int64]int64{}
		for w, sum := range want {
			sums[sum&3] += w.start
		}
		last := map[int64]operators.Change[int64, int64]{}
		for _, c := range groups.Rows {
			last[c.Key] = c
		}
		for group, c := range last {
			sum, there := sums[group]
			require.Equal(t, !there, c.Deleted, "group %d", group)
			require.Equal(t, sum, c.Value, "group %d", group)
			delete(sums, group)
		}
		require.Empty(t, sums)
		for name, n := range report.State {
			require.True(t, name == "aggregate.members" || name == "w.wall-timers" || strings.HasSuffix(name, ".fired"), "%d keys in table %q", n, name)
		}
	})
	for kind := operators.Insert; kind <= operators.Delete; kind++ {
		require.NotZero(t, seen[kind], kind)
	}
}

// A session that has had a result, and grows over the lateness of the result, takes it back.
func TestWindowUpdatesOfASessionThatGrows(t *testing.T) {
	rows, _ := oneAfterTheOther(t, []optest.Timed[hit]{
		sec(0, 1),
		sec(15, 2), // the first is emitted
		sec(8, 4),  // both are one
		sec(24, 8), // that ends behind the lateness of the first
		sec(50, 0, "x"),
		sec(90, 0, "x"),
	}, func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
		sums := operators.AggregateSessions(in, "s", 10*time.Second, summing(), operators.Lateness(6*time.Second))
		return operators.Map(operators.WindowUpdates(sums, "u"), showUpdate)
	})
	require.Contains(t, rows, "k +I [0, 10000) 1")
	require.Contains(t, rows, "k -D [0, 10000) 1")
	require.Contains(t, rows, "k +I [0, 34000) 15")
}

func showUpdate(kv *windowUpdate) string {
	u := &kv.Value
	return fmt.Sprintf("%s %v [%d, %d) %d", kv.Key, u.Kind, u.Value.Start, u.Value.End, u.Value.Value)
}

// Results hold memory that the next one of the window changes in its place.
func TestWindowUpdatesHoldMemory(t *testing.T) {
	job := operators.NewJob("lists")
	items := []optest.Timed[hit]{optest.At(1, hit{"k", 1}), optest.At(1, hit{"k", 2}), optest.At(1, hit{"k", 4}), optest.At(1, hit{"k", 8})}
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(0, items), hitSerde), "k", serde.String, byKey)
	sums := operators.AggregateSessions(in, "s", time.Second, operators.Aggregator[hit, []int64]{
		Add: func(acc *[]int64, h *hit, _ int64) {
			if *acc == nil {
				*acc = make([]int64, 1)
			}
			(*acc)[0] += h.N
		},
		Merge: func(acc, other *[]int64) {},
		Acc:   serde.Slice(serde.Int64),
	}, operators.Emit(operators.Eager))
	var results, updates []string
	operators.ToSink(operators.Map(sums, func(kv *operators.KV[string, operators.Windowed[[]int64]]) string { return fmt.Sprint(kv.Value.Value) }), "results",
		operators.FuncSink(func(b *operators.Batch[string]) error {
			for _, s := range b.Items {
				results = append(results, strings.Clone(s))
			}
			return nil
		}))
	operators.ToSink(operators.Map(operators.WindowUpdates(sums, "u"), func(kv *operators.KV[string, operators.Update[operators.Windowed[[]int64]]]) string {
		return fmt.Sprintf("%v%v", kv.Value.Kind, kv.Value.Value.Value)
	}), "updates", operators.FuncSink(func(b *operators.Batch[string]) error {
		for _, s := range b.Items {
			updates = append(updates, strings.Clone(s))
		}
		return nil
	}))
	plan, err := job.Plan()
	require.NoError(t, err)
	_, err = optest.Run(plan, optest.Options{CommitEvery: 9})
	require.NoError(t, err)
	require.Equal(t, []string{"[1]", "[3]", "[7]", "[15]"}, results)
	require.Equal(t, []string{"+I[1]", "-U[1]", "+U[3]", "-U[3]", "+U[7]", "-U[7]", "+U[15]"}, updates)
}

func TestWindowUpdatesErrors(t *testing.T) {
	job := operators.NewJob("updates")
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde), "k", serde.String, byKey)
	counts := operators.CountWindows(in, operators.Tumbling(time.Second))
	operators.WindowUpdates(operators.FilterValues(counts, func(_ *string, w *operators.Windowed[int64]) bool { return w.Value > 1 }), "a")
	operators.WindowUpdates(operators.AggregateTriggered(in, "t", operators.Global(), summing(), operators.EveryCount(2), operators.Discarding()), "b")
	operators.WindowUpdates(counts, "t")
	_, err := job.Plan()
	for _, text := range []string{
		`updates of windows "a": the stream does not come from an operator with windows`,
		`updates of windows "b": the results of "t" are Discarding, none replaces another`,
		`process function "t": there is a process function of that name`,
	} {
		require.ErrorContains(t, err, text)
	}
}

// ExampleWindowUpdates: ann's second and third item make her session longer.
func ExampleWindowUpdates() {
	commitEvery = 1
	defer func() { commitEvery = 0 }()
	job := operators.NewJob("updates")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	sessions := operators.AggregateSessions(byName, "s", 10*time.Millisecond, operators.Counting[hit](), operators.Emit(operators.Eager))
	show(job, operators.WindowUpdates(sessions, "updates"), showUpdate)
	// Output:
	// ann +I [1, 11) 1
	// ann +I [1, 14) 2
	// ann +I [1, 22) 3
	// ann -D [1, 11) 1
	// ann -D [1, 14) 2
	// bob +I [2, 12) 1
	// bob +I [31, 41) 1
}

// ExampleGroupUpdates: how many windows have how many items, though windows are counted
// before they are complete.
func ExampleGroupUpdates() {
	job := operators.NewJob("sizes")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	counts := operators.AggregateTriggered(byName, "w", operators.Tumbling(20*time.Millisecond), operators.Counting[hit](), operators.EveryCount(1))
	bySize := operators.GroupUpdates(operators.WindowUpdates(counts, "updates"), "by-size", serde.Int64,
		func(_ *string, w *operators.Windowed[int64]) int64 { return w.Value })
	windows := operators.AggregateUpdates(bySize, operators.Subtractor[operators.Windowed[int64], int64]{
		Add:      func(n *int64, _ *operators.Windowed[int64]) { *n++ },
		Subtract: func(n *int64, _ *operators.Windowed[int64]) { *n-- },
	})
	show(job, windows, func(c *operators.Change[int64, int64]) string {
		return fmt.Sprint(c.Key, " items: ", c.Value, " windows")
	})
	// Output:
	// 1 items: 1 windows
	// 1 items: 1 windows
	// 1 items: 1 windows
	// 1 items: 2 windows
	// 1 items: 2 windows
	// 1 items: 2 windows
	// 2 items: 0 windows
	// 2 items: 1 windows
	// 3 items: 1 windows
	// 3 items: 1 windows
}
