package watermark_test

import (
	"fmt"
	"math"
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

// span is a session of the brute force.
type span struct {
	first, end, sum int64
}

// sessionsOf returns the sessions of each key and the late items, by a fold over the items of each clock.
func sessionsOf(parts [][]optest.Timed[hit], g grain, gap, lateness int64) (rows []string, late []string) {
	open := map[string][]span{}
	byOwnTime(parts, g, func(x *optest.Timed[hit], own int64) {
		key, now := x.Value.Key, []span{}
		for _, s := range open[key] {
			if own != math.MinInt64 && s.end+lateness <= own {
				rows = append(rows, fmt.Sprintf("%s [%d,%d) %d", key, s.first, s.end, s.sum))
			} else {
				now = append(now, s)
			}
		}
		whole, rest := span{x.Time, x.Time + gap, x.Value.N}, []span{}
		for _, s := range now {
			if s.first < x.Time+gap && x.Time < s.end {
				whole = span{min(whole.first, s.first), max(whole.end, s.end), whole.sum + s.sum}
			} else {
				rest = append(rest, s)
			}
		}
		if own != math.MinInt64 && whole.end+lateness <= own {
			late = append(late, showHit(&x.Value))
			rest = now
		} else {
			rest = append(rest, whole)
		}
		open[key] = rest
	})
	for key, all := range open {
		for _, s := range all {
			rows = append(rows, fmt.Sprintf("%s [%d,%d) %d", key, s.first, s.end, s.sum))
		}
	}
	slices.Sort(rows)
	slices.Sort(late)
	return rows, late
}

// TestSessionsByKey: with a clock for each key, or for some keys, sessions and late items are those of a fold
// over the items of each clock. No state is left.
func TestSessionsByKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gap := rapid.SampledFrom([]int64{1, 4, 10}).Draw(t, "gap")
		o := drawOptions(t)
		g := drawGrain(t, o.Groups)
		lateness := rapid.SampledFrom([]int64{0, 0, 3, 30}).Draw(t, "lateness")
		parts := g.drawParts(t)
		want, wantLate := sessionsOf(parts, g, gap, lateness)

		job := operators.NewJob("sessions")
		src := operators.FromSource(job, "src", optest.Items(behind(parts), parts...), hitSerde)
		in := operators.KeyBy(src, "k", serde.String, byKey, g.option())
		sums := operators.AggregateSessions(in, "s", milliseconds(gap), summing(), operators.Lateness(milliseconds(lateness)))
		lates := optest.Collect(clone)
		operators.ToSink(operators.Map(operators.Late[hit](sums), lateRow), "late", lates)
		rows, report := runRows(t, job, windowRows(sums), o)
		if lateness == 0 {
			require.Equal(t, want, rows)
		} else {
			for _, row := range want { // among results that were replaced
				require.Contains(t, rows, row)
			}
		}
		slices.Sort(lates.Rows)
		require.Equal(t, wantLate, slices.Clone(lates.Rows))
		require.EqualValues(t, len(wantLate), report.Counts["late_by_key"])
		require.Zero(t, report.Counts["late_by_stream"])
		requireNothingLeft(t, report)
	})
}

// requireNothingLeft requires that no state and no clock is left, except for the cursors, and that
// nothing that was emitted was late for its consumers.
func requireNothingLeft(t require.TestingT, report optest.Report) {
	for name, n := range report.State {
		require.True(t, strings.HasSuffix(name, ".fired"), "%d keys in table %q", n, name)
	}
	for _, m := range report.Metrics {
		require.Equal(t, "clocks", m.Name)
		require.Zero(t, m.Value, "clocks are left")
	}
	require.Zero(t, report.Behind)
}

// TestJoinsByKey: with a clock for each key that allows for the disorder, joins find all pairs, whatever
// the parallelism, commits, crashes, and which side is ahead. No state is left.
func TestJoinsByKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		left, right := drawHits(t, "left", 40), drawHits(t, "right", 40)
		kind := rapid.SampledFrom([]string{"streams", "windows", "outer", "as of"}).Draw(t, "kind")
		job := operators.NewJob("joins")
		per := operators.WatermarkPer(operators.Key, disorder*time.Millisecond)
		l := operators.KeyBy(operators.FromSource(job, "a", optest.Items(disorder, left), hitSerde), "l", serde.String, byKey, per)
		r := operators.KeyBy(operators.FromSource(job, "b", optest.Items(disorder, right), hitSerde), "r", serde.String, byKey, per)
		pair := func(_ *string, l, r *hit) string {
			if r == nil {
				return showHit(l) + " alone"
			}
			return showHit(l) + " " + showHit(r)
		}
		var joined operators.KeyedStream[string, string]
		var want []string
		add := func(row string) { want = append(want, row) }
		switch kind {
		case "streams", "outer":
			if kind == "streams" {
				joined = operators.JoinStreams(l, r, "join", 5*time.Millisecond, pair)
			} else {
				joined = operators.LeftJoinStreams(l, r, "join", 5*time.Millisecond, pair)
			}
			for i := range left {
				alone := true
				for k := range right {
					if x, y := &left[i], &right[k]; x.Value.Key == y.Value.Key && x.Time-y.Time <= 5 && y.Time-x.Time <= 5 {
						add(pair(nil, &x.Value, &y.Value))
						alone = false
					}
				}
				if alone && kind == "outer" {
					add(pair(nil, &left[i].Value, nil))
				}
			}
		case "windows":
			joined = operators.JoinWindows(l, r, "join", operators.Sliding(10*time.Millisecond, 5*time.Millisecond),
				func(_ *string, _, end int64, l, r *hit) string { return fmt.Sprint(end, " ", pair(nil, l, r)) })
			for i := range left {
				for k := range right {
					for _, end := range windowsOf(left[i].Time, 10, 5) {
						if x, y := &left[i], &right[k]; x.Value.Key == y.Value.Key && end-10 <= y.Time && y.Time < end {
							add(fmt.Sprint(end, " ", pair(nil, &x.Value, &y.Value)))
						}
					}
				}
			}
		case "as of":
			joined = operators.LeftJoinTable(l, operators.AsTable(r), "join", pair)
			for i := range left {
				x := &left[i]
				var as *optest.Timed[hit]
				for k := range right {
					if y := &right[k]; x.Value.Key == y.Value.Key && y.Time <= x.Time && (as == nil || y.Time >= as.Time) {
						as = y
					}
				}
				if as == nil {
					add(pair(nil, &x.Value, nil))
				} else {
					add(pair(nil, &x.Value, &as.Value))
				}
			}
		}
		slices.Sort(want)
		out := operators.Map(joined, func(kv *operators.KV[string, string]) string { return kv.Value })
		rows, report := runRows(t, job, out, drawOptions(t))
		require.Equal(t, want, rows)
		require.Zero(t, report.Late)
		require.Zero(t, report.Behind)
		for name, n := range report.State {
			require.True(t, kind == "as of" && strings.HasSuffix(name, ".versions"), "%d keys in table %q", n, name)
		}
	})
}
