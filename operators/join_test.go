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

// runRows runs the job with rows as its output and returns them sorted.
func runRows(t require.TestingT, job *operators.Job, rows operators.Flow[string], o optest.Options) ([]string, optest.Report) {
	out := optest.Collect(func(s *string) string { return strings.Clone(*s) })
	operators.ToSink(rows, "out", out)
	plan, err := job.Plan()
	require.NoError(t, err)
	report, err := optest.Run(plan, o)
	require.NoError(t, err)
	got := slices.Clone(out.Rows)
	slices.Sort(got)
	return got, report
}

func values(ks operators.KeyedStream[string, string]) operators.Stream[string] {
	return operators.Map(ks, func(kv *operators.KV[string, string]) string { return kv.Value })
}

// requireNoState requires that expired state is gone (except for the cursors, one a key group).
func requireNoState(t require.TestingT, r optest.Report, keep bool) {
	for name, n := range r.State {
		if !strings.HasSuffix(name, ".fired") && !keep {
			require.Zero(t, n, "keys in table %q", name)
		}
	}
}

func pairRow(key string, l, r *hit) string {
	return fmt.Sprintf("%s %s/%d %s/%d", key, l.Key, l.N, r.Key, r.N)
}

// twoSides draws two sources and keys both.
func twoSides(t *rapid.T) (job *operators.Job, a, b []optest.Timed[hit], left, right operators.KeyedStream[string, hit]) {
	a, b = drawHits(t, "left", 30), drawHits(t, "right", 30)
	job = operators.NewJob("join")
	left = operators.KeyBy(operators.FromSource(job, "a", optest.Items(disorder, a), hitSerde), "l", serde.String, byKey)
	right = operators.KeyBy(operators.FromSource(job, "b", optest.Items(disorder, b), hitSerde), "r", serde.String, byKey)
	return job, a, b, left, right
}

func TestJoinStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		within := rapid.SampledFrom([]time.Duration{operators.Forever, 0, time.Millisecond, 30 * time.Millisecond}).Draw(t, "within")
		job, a, b, left, right := twoSides(t)
		want := []string{}
		for _, l := range a {
			for _, r := range b {
				apart := max(l.Time-r.Time, r.Time-l.Time)
				if l.Value.Key == r.Value.Key && (within == operators.Forever || apart <= within.Milliseconds()) {
					want = append(want, pairRow(l.Value.Key, &l.Value, &r.Value))
				}
			}
		}
		slices.Sort(want)
		joined := operators.JoinStreams(left, right, "join", within, func(k *string, l, r *hit) string { return pairRow(*k, l, r) })
		got, report := runRows(t, job, values(joined), drawOptions(t))
		require.ElementsMatch(t, want, got)
		require.Zero(t, report.Late)
		requireNoState(t, report, within == operators.Forever)
	})
}

func TestJoinWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int64{5, 10, 20}).Draw(t, "size")
		slide := rapid.SampledFrom([]int64{5, 7, 10, 30}).Draw(t, "slide")
		job, a, b, left, right := twoSides(t)
		var want []string
		for _, l := range a {
			for _, r := range b {
				for _, end := range windowsOf(l.Time, size, slide) {
					if l.Value.Key == r.Value.Key && end-size <= r.Time && r.Time < end {
						want = append(want, fmt.Sprint(end, pairRow(l.Value.Key, &l.Value, &r.Value)))
					}
				}
			}
		}
		slices.Sort(want)
		win := operators.Sliding(time.Duration(size)*time.Millisecond, time.Duration(slide)*time.Millisecond)
		joined := operators.JoinWindows(left, right, "join", win, func(k *string, _, end int64, l, r *hit) string {
			return fmt.Sprint(end, pairRow(*k, l, r))
		})
		got, report := runRows(t, job, values(joined), drawOptions(t))
		require.ElementsMatch(t, want, got)
		require.Zero(t, report.Late)
		requireNoState(t, report, false)
	})
}

// sessionsOf computes the sessions of items by brute force: sort, and split at gaps.
func sessionsOf(items []optest.Timed[hit], gap int64) []string {
	sorted := slices.Clone(items)
	slices.SortStableFunc(sorted, func(a, b optest.Timed[hit]) int { return int(a.Time - b.Time) })
	type run struct{ first, last, n int64 }
	open := map[string]*run{}
	want := []string{}
	finish := func(k string) {
		if r := open[k]; r != nil {
			want = append(want, fmt.Sprintf("%s [%d,%d) %d", k, r.first, r.last+gap, r.n))
			delete(open, k)
		}
	}
	for _, x := range sorted {
		k := x.Value.Key
		if r := open[k]; r != nil && x.Time-r.last >= gap {
			finish(k)
		}
		if open[k] == nil {
			open[k] = &run{x.Time, x.Time, 0}
		}
		open[k].last = x.Time
		open[k].n += x.Value.N
	}
	for _, k := range []string{"a", "b", "c", "dd", ""} {
		finish(k)
	}
	slices.Sort(want)
	return want
}

func TestSessions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gap := rapid.SampledFrom([]int64{1, 2, 5, 60}).Draw(t, "gap")
		items := drawHits(t, "items", 60)
		job := operators.NewJob("sessions")
		src := operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde)
		ks := operators.AggregateSessions(operators.KeyBy(src, "k", serde.String, byKey), "s", time.Duration(gap)*time.Millisecond, summing())
		got, report, err := rowsOf(ks, job, drawOptions(t))
		require.NoError(t, err)
		require.ElementsMatch(t, sessionsOf(items, gap), got)
		require.Zero(t, report.Late)
		requireNoState(t, report, false)
	})
}

// Under a source whose watermark is too high, every item is late; within the lateness it counts all
// the same, and the results that it changes are emitted again. Eager sessions are emitted whenever
// they change. Either way each session is among the rows in its final form.
func TestSessionsEmittedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gap := rapid.SampledFrom([]int64{1, 2, 5, 60}).Draw(t, "gap")
		items := drawHits(t, "items", 40)
		delay, opt := int64(0), operators.Lateness(time.Hour)
		if rapid.Bool().Draw(t, "eager") {
			delay, opt = disorder, operators.Emit(operators.Eager)
		}
		job := operators.NewJob("sessions")
		src := operators.FromSource(job, "src", optest.Items(delay, items), hitSerde)
		ks := operators.AggregateSessions(operators.KeyBy(src, "k", serde.String, byKey), "s", time.Duration(gap)*time.Millisecond, summing(), opt)
		got, report, err := rowsOf(ks, job, drawOptions(t))
		require.NoError(t, err)
		require.Subset(t, got, sessionsOf(items, gap))
		require.Zero(t, report.Late)
		requireNoState(t, report, false)
	})
}

// Behind its lateness an item is counted and changes nothing.
func TestSessionsTooLate(t *testing.T) {
	job := operators.NewJob("sessions")
	items := []optest.Timed[hit]{optest.At(0, hit{"a", 1})}
	for range 12 { // several reads, and so commits: the watermark is at 100 behind them
		items = append(items, optest.At(100, hit{"b", 1}))
	}
	items = append(items,
		optest.At(3, hit{"a", 10}), // its session ended at 5, and the lateness at 25
		optest.At(90, hit{"a", 2})) // late, and a session of its own within the lateness
	src := operators.FromSource(job, "src", optest.Items(0, items), hitSerde)
	ks := operators.AggregateSessions(operators.KeyBy(src, "k", serde.String, byKey), "s", 5*time.Millisecond, summing(), operators.Lateness(20*time.Millisecond))
	got, report, err := rowsOf(ks, job, optest.Options{CommitEvery: 1})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"a [0,5) 1", "a [90,95) 2", "b [100,105) 12"}, got)
	require.EqualValues(t, 1, report.Late)
}
