package watermark_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/watermark"
)

// A clock that follows paths, and is set back to its boundaries at any item as after a restart, reaches the
// boundaries that a fold over all items and promises reaches.
func TestPathsAreAFold(t *testing.T) {
	type step struct {
		path    int
		time    int64
		restart bool
	}
	rapid.Check(t, func(t *rapid.T) {
		b := watermark.Boundaries{End: 10, Every: rapid.SampledFrom([]int64{3, 10}).Draw(t, "every"), Lateness: rapid.SampledFrom([]int64{0, 4}).Draw(t, "lateness")}
		delay := rapid.SampledFrom([]int64{0, 2, 7}).Draw(t, "delay")
		promised := make([]int64, rapid.IntRange(1, 4).Draw(t, "paths"))
		for i := range promised {
			promised[i] = exec.MinTime
		}
		c, p := watermark.New(), watermark.NewPaths()
		own, items := int64(exec.MinTime), make([][]int64, len(promised))
		for range rapid.IntRange(1, 60).Draw(t, "items") {
			s := step{rapid.IntRange(0, len(promised)-1).Draw(t, "path"), rapid.Int64Range(-50, 50).Draw(t, "time"), rapid.IntRange(0, 4).Draw(t, "restart") == 0}
			if i := rapid.IntRange(0, 4*len(promised)).Draw(t, "promises"); i < len(promised) {
				promised[i] = rapid.SampledFrom([]int64{exec.MaxTime, max(promised[i], s.time-20)}).Draw(t, "promise")
			}
			items[s.path] = append(items[s.path], s.time-delay)
			least := int64(exec.MaxTime)
			for i, w := range promised {
				switch {
				case w < exec.MaxTime:
					least = min(least, max(w, slices.Max(append([]int64{exec.MinTime}, items[i]...))))
				case i == s.path:
					least = min(least, slices.Max(items[i]))
				}
			}
			own = max(own, least)
			if c.Follow(p.Move(s.path, s.time, delay, promised)) {
				c.Next = b.After(c.Own)
			}
			for at := int64(-80); at <= 80; at++ {
				if isBoundary(b, at) {
					require.Equal(t, at <= own, at <= c.Own, "boundary %d", at)
				}
			}
			if s.restart {
				for i, own := range p {
					if own > exec.MinTime {
						p[i] = b.Reached(own)
					}
				}
				if c.Own > exec.MinTime {
					c.Own = b.Reached(c.Own)
					c.Next = b.After(c.Own)
				}
			}
		}
	})
}

// drawShared draws the items of three partitions, each of which has some of every key and is ahead of the
// others or behind.
func drawShared(t *rapid.T) [][]optest.Timed[hit] {
	parts := make([][]optest.Timed[hit], 3)
	for p := range parts {
		parts[p] = drawHits(t, fmt.Sprint("partition ", p), 30)
		ahead := rapid.SampledFrom([]int64{0, 0, 15, 60}).Draw(t, "ahead")
		for i := range parts[p] {
			parts[p][i].Time += ahead
		}
	}
	return parts
}

// TestByProducer: with clocks that follow the items of each producer, and a delay that allows for the
// disorder of a partition, no item is late, though the partitions have the same keys and are not in step:
// windows, sessions and joins are those of brute force. With a smaller delay, what windows do not count is late,
// and nothing else. No state is left.
func TestByProducer(t *testing.T) {
	all, late := 0, 0 // of items, without ByProducer
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		o.Parallelism = 3 // a producer for each partition
		parts := drawShared(t)
		tasks := operators.Parallelism(rapid.IntRange(1, 4).Draw(t, "tasks"))
		kind := rapid.SampledFrom([]string{"windows", "sessions", "join", "windows, small delay", "windows, one path"}).Draw(t, "kind")
		delay := int64(disorder)
		if kind == "windows, small delay" {
			delay = rapid.Int64Range(0, disorder-1).Draw(t, "delay")
		}
		by := operators.ByProducer()
		if kind == "windows, one path" {
			by = operators.Groups(0)
		}
		job := operators.NewJob("paths")
		keyed := func(name string, parts [][]optest.Timed[hit]) operators.KeyedStream[string, hit] {
			src := operators.FromSource(job, name, optest.Items(behind(parts), parts...), hitSerde)
			return operators.KeyBy(src, name+" by key", serde.String, byKey, operators.WatermarkPer(operators.Key, milliseconds(delay)), by, tasks)
		}
		in := keyed("src", parts)
		sum, sums := int64(0), map[keyedWindow]int64{}
		var want []string
		add := func(row string) { want = append(want, row) }
		switch kind {
		case "sessions":
			var items []optest.Timed[hit]
			for _, p := range parts {
				items = append(items, p...)
			}
			slices.SortStableFunc(items, func(a, b optest.Timed[hit]) int { return int(a.Time - b.Time) })
			want, _ = sessionsOf([][]optest.Timed[hit]{items}, grain{delay: 0}, 5, 0)
		case "join":
			right := drawShared(t)
			r := keyed("right", right)
			for _, x := range slices.Concat(parts...) {
				for _, y := range slices.Concat(right...) {
					if x.Value.Key == y.Value.Key && x.Time-y.Time <= 5 && y.Time-x.Time <= 5 {
						add(showHit(&x.Value) + " " + showHit(&y.Value))
					}
				}
			}
			slices.Sort(want)
			joined := operators.JoinStreams(in, r, "join", milliseconds(5), func(_ *string, l, r *hit) string { return showHit(l) + " " + showHit(r) })
			rows, report := runRows(t, job, operators.Map(joined, func(kv *operators.KV[string, string]) string { return kv.Value }), o)
			require.Equal(t, want, rows)
			require.Zero(t, report.Late)
			requireNothingLeft(t, report)
			return
		default:
			for _, x := range slices.Concat(parts...) {
				sum += x.Value.N
				for _, end := range windowsOf(x.Time, 10, 10) {
					sums[keyedWindow{x.Value.Key, end}] += x.Value.N
				}
			}
			for w, n := range sums {
				add(fmt.Sprintf("%s [%d,%d) %d", w.key, w.end-10, w.end, n))
			}
			slices.Sort(want)
		}
		var results operators.KeyedStream[string, operators.Windowed[int64]]
		if kind == "sessions" {
			results = operators.AggregateSessions(in, "s", milliseconds(5), summing())
		} else {
			results = operators.AggregateWindows(in, operators.Tumbling(milliseconds(10)), summing())
		}
		var counted, dropped int64
		lates := optest.Collect(func(n *int64) int64 { return *n })
		operators.ToSink(operators.Map(operators.Late[hit](results), func(kv *operators.KV[string, hit]) int64 { return kv.Value.N }), "late", lates)
		values := optest.Collect(func(n *int64) int64 { return *n })
		operators.ToSink(operators.Map(results, func(kv *operators.KV[string, operators.Windowed[int64]]) int64 { return kv.Value.Value }), "values", values)
		rows, report := runRows(t, job, windowRows(results), o)
		for _, n := range values.Rows {
			counted += n
		}
		for _, n := range lates.Rows {
			dropped += n
		}
		require.Len(t, lates.Rows, report.Late)
		requireNothingLeft(t, report)
		switch kind {
		case "windows, one path":
			all, late = all+len(slices.Concat(parts...)), late+report.Late
			fallthrough
		case "windows, small delay":
			require.Equal(t, sum, counted+dropped)
		default:
			require.Equal(t, want, rows)
			require.Zero(t, report.Late)
		}
	})
	require.Greater(t, late, all/20, "the clock of a key that follows its items as they come: the test cannot fail")
}
