package tasks_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// tally is a job of TestReroutedOverCrashes: plan builds it, want are its rows as they are counted without a job, sorted, and
// stages those whose keys are routed.
type tally struct {
	plan   func(t *testing.T) *operators.Plan
	want   []string
	stages []string
}

// tallies draw the items of a job that writes its rows to a file. Those whose names begin with key have clocks of
// keys, by the tasks of the source, of which there are so many.
var tallies = map[string]func(seed uint64, file string, tasks int) tally{
	"trails": func(seed uint64, file string, _ int) tally {
		x := newTrails(seed, 30_000, 2)
		return tally{func(t *testing.T) *operators.Plan { return x.plan(t, file) }, x.want, []string{"by-key", "by-digit"}}
	},
	"windows":             windowTally.of(false),
	"key windows":         windowTally.of(true),
	"sliding windows":     slidingTally.of(false),
	"key sliding windows": slidingTally.of(true),
	"sessions":            sessionTally.of(false),
	"key sessions":        sessionTally.of(true),
	"join":                joinTally.of(false),
	"key join":            joinTally.of(true),
	"process":             processTally.of(false),
	"key process":         processTally.of(true),
}

// An item of these jobs is its number, key and side of a join.
const tallyItems, right = 60_000, 1

func tallyItem(n, key, side int64) int64 { return (n*trailKeys+key)*2 + side }
func tallyParts(v int64) (n, key int64, side int64) {
	return v / 2 / trailKeys, v / 2 % trailKeys, v % 2
}
func tallyKey(v *int64) int64 { return *v / 2 % trailKeys }

type (
	tallied    = optest.Timed[int64]
	tallyInput = operators.KeyedStream[int64, int64]
	tallyRows  = operators.KeyedStream[int64, string]
)

// aTally is an operator whose rows are counted: build makes it, and count calls row for each row of a key, whose items are sorted
// by their times.
type aTally struct {
	build func(in, right tallyInput) tallyRows
	count func(key int64, all []tallied, row func(format string, args ...any))
}

func (c aTally) of(byKey bool) func(seed uint64, file string, tasks int) tally {
	return func(seed uint64, file string, tasks int) tally {
		if byKey {
			return c.with(seed, file, min(tasks, 2), operators.WatermarkPer(operators.Key, delay*time.Millisecond), operators.ByProducer())
		}
		return c.with(seed, file, 2)
	}
}

// with returns the job with so many partitions, and options of its streams.
func (c aTally) with(seed uint64, file string, partitions int, opts ...operators.RouteOption) tally {
	rng := rand.New(rand.NewPCG(seed, 85))
	parts := make([][]tallied, partitions)
	keys := map[int64][]tallied{}
	for i := range int64(tallyItems) {
		key, p := rng.Int64N(trailKeys)*rng.Int64N(trailKeys)/trailKeys, rng.IntN(len(parts))
		x := optest.At(i-rng.Int64N(delay), tallyItem(i, key, rng.Int64N(2)))
		parts[p], keys[key] = append(parts[p], x), append(keys[key], x)
	}
	job := tally{stages: []string{"by-key"}}
	for key, all := range keys {
		slices.SortFunc(all, func(a, b tallied) int { return int(a.Time - b.Time) })
		c.count(key, all, func(format string, args ...any) { job.want = append(job.want, fmt.Sprintf(format, args...)) })
	}
	slices.Sort(job.want)
	job.plan = func(t *testing.T) *operators.Plan {
		job := operators.NewJob("tallies")
		in := operators.FromSource(job, "keys", optest.Items(delay, parts...), serde.Int64)
		others := operators.Filter(in, func(v *int64) bool { return *v%2 == right })
		rows := c.build(operators.KeyBy(in, "by-key", serde.Int64, tallyKey, opts...), operators.KeyBy(others, "right", serde.Int64, tallyKey, opts...))
		operators.ToSink(rows.With(serde.String), "out", operators.FileSink(file, func(dst []byte, r *operators.KV[int64, string]) []byte {
			return append(append(dst, r.Value...), '\n')
		}, false))
		plan, err := job.Plan()
		require.NoError(t, err)
		return plan
	}
	return job
}

// within returns how many items there are in [start, end), and the sum of their numbers.
func within(all []tallied, start, end int64) (n int, sum int64) {
	for _, x := range all {
		if start <= x.Time && x.Time < end {
			of, _, _ := tallyParts(x.Value)
			n, sum = n+1, sum+of
		}
	}
	return n, sum
}

// spanRow is the row of the items in a window or session.
const spanRow = "[%d,%d) of %d: %d items, %d"

// countSpans counts the windows of a size that end at multiples of slide.
func countSpans(size, slide int64) func(key int64, all []tallied, row func(format string, args ...any)) {
	return func(key int64, all []tallied, row func(format string, args ...any)) {
		ends := map[int64]bool{}
		for _, x := range all {
			for end := (x.Time+tallyItems)/slide*slide + slide - tallyItems; end <= x.Time+size; end += slide {
				ends[end] = true
			}
		}
		for end := range ends {
			from, _ := slices.BinarySearchFunc(all, end-size, func(x tallied, t int64) int { return int(x.Time - t) })
			to, _ := slices.BinarySearchFunc(all, end, func(x tallied, t int64) int { return int(x.Time - t) })
			n, sum := within(all[from:to], end-size, end)
			row(spanRow, end-size, end, key, n, sum)
		}
	}
}

// tallySum counts items, and adds up their numbers.
func tallySum() operators.Aggregator[int64, int64] {
	return operators.Aggregator[int64, int64]{
		Add: func(acc *int64, v *int64, _ int64) {
			n, _, _ := tallyParts(*v)
			*acc += tallyMany + n
		},
		Merge: func(acc, other *int64) { *acc += *other },
	}
}

const tallyMany = 1 << 40

func tallySums(in operators.KeyedStream[int64, operators.Windowed[int64]]) tallyRows {
	return operators.MapValues(in, func(key *int64, w *operators.Windowed[int64]) string {
		return fmt.Sprintf(spanRow, w.Start, w.End, *key, w.Value/tallyMany, w.Value%tallyMany)
	})
}

var windowTally = aTally{
	func(in, _ tallyInput) tallyRows {
		return tallySums(operators.AggregateWindows(in, operators.Tumbling(100*time.Millisecond), tallySum()))
	},
	countSpans(100, 100),
}

// tallyList keeps the items.
func tallyList() operators.Aggregator[int64, []int64] {
	return operators.Aggregator[int64, []int64]{
		Acc:   serde.Slice(serde.Int64),
		Add:   func(acc *[]int64, v *int64, _ int64) { *acc = append(*acc, *v) },
		Merge: func(acc, other *[]int64) { *acc = append(*acc, *other...) },
	}
}

func tallyLists(in operators.KeyedStream[int64, operators.Windowed[[]int64]]) tallyRows {
	return operators.MapValues(in, func(key *int64, w *operators.Windowed[[]int64]) string {
		var sum int64
		for _, v := range w.Value {
			n, _, _ := tallyParts(v)
			sum += n
		}
		return fmt.Sprintf(spanRow, w.Start, w.End, *key, len(w.Value), sum)
	})
}

var slidingTally = aTally{
	func(in, _ tallyInput) tallyRows {
		win := operators.Sliding(200*time.Millisecond, 50*time.Millisecond)
		return tallyLists(operators.AggregateWindows(in, win, tallyList(), operators.Lateness(70*time.Millisecond)))
	},
	countSpans(200, 50),
}

const tallyGap = 20

var sessionTally = aTally{
	func(in, _ tallyInput) tallyRows {
		return tallySums(operators.AggregateSessions(in, "sessions", tallyGap*time.Millisecond, tallySum()))
	},
	func(key int64, all []tallied, row func(format string, args ...any)) {
		for from := 0; from < len(all); {
			to := from + 1
			for to < len(all) && all[to].Time < all[to-1].Time+tallyGap {
				to++
			}
			start, end := all[from].Time, all[to-1].Time+tallyGap
			n, sum := within(all[from:to], start, end)
			row(spanRow, start, end, key, n, sum)
			from = to
		}
	},
}

const pairRow = "%d and %d of %d by %d"

var joinTally = aTally{
	func(in, right tallyInput) tallyRows {
		return operators.JoinWindows(in, right, "join", operators.Tumbling(20*time.Millisecond), func(key *int64, _, end int64, l, r *int64) string {
			left, _, _ := tallyParts(*l)
			n, _, _ := tallyParts(*r)
			return fmt.Sprintf(pairRow, left, n, *key, end)
		})
	},
	func(key int64, all []tallied, row func(format string, args ...any)) {
		windows := map[int64][]tallied{}
		for _, x := range all {
			end := (x.Time+tallyItems)/20*20 + 20 - tallyItems
			windows[end] = append(windows[end], x)
		}
		for end, all := range windows {
			for _, l := range all {
				for _, r := range all {
					left, _, _ := tallyParts(l.Value)
					if n, _, side := tallyParts(r.Value); side == right {
						row(pairRow, left, n, key, end)
					}
				}
			}
		}
	},
}

// A function that counts by 100 ms has a timer for each, and a list of all items.
var processTally = aTally{
	func(in, _ tallyInput) tallyRows {
		return operators.Process(in, "count", func(c *operators.Context[int64, string]) operators.Handler[int64] {
			counts := operators.NewMap(c, "counts", serde.Int64, serde.Int64)
			list := operators.NewList(c, "list", serde.Int64)
			return operators.Handler[int64]{
				Item: func(v *int64) {
					end := (c.Time()+tallyItems)/100*100 + 100 - tallyItems
					*counts.Upsert(end)++
					list.Add(c.Time(), v)
					c.SetEventTimer(end)
				},
				Timers: operators.Timers{OnEvent: func(end int64) {
					n, sum := int64(0), int64(0)
					if have := counts.Get(end); have != nil {
						n = *have
					}
					for _, e := range list.All() {
						if e.Time < end {
							of, _, _ := tallyParts(e.Value)
							sum += of
						}
					}
					counts.Delete(end)
					list.DropBefore(end)
					c.Emit(fmt.Sprintf(spanRow, end-100, end, c.Key(), n, sum), end)
				}},
			}
		})
	},
	countSpans(100, 100),
}
