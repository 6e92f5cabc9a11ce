package operators_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

type hit struct {
	Key string
	N   int64
}

var hitSerde = serde.New("hit",
	func(dst []byte, h *hit) []byte { return serde.AppendInt64(serde.AppendString(dst, h.Key), h.N) },
	func(r *serde.Reader, h *hit) { h.Key, h.N = r.String(), r.Int64() })

const disorder = 7

// drawHits draws items out of order by at most disorder, around time 0 so that
// negative times are among them, with ties and gaps.
func drawHits(t *rapid.T, label string, n int) []optest.Timed[hit] {
	base := rapid.Int64Range(-60, 20).Draw(t, label+" base")
	var out []optest.Timed[hit]
	for range rapid.IntRange(0, n).Draw(t, label+" n") {
		base += rapid.SampledFrom([]int64{0, 0, 1, 1, 2, 3, 40}).Draw(t, "step")
		out = append(out, optest.At(
			base-rapid.Int64Range(0, disorder).Draw(t, "back"),
			hit{rapid.SampledFrom([]string{"a", "b", "c", "dd", ""}).Draw(t, "key"), rapid.Int64Range(-3, 5).Draw(t, "n")}))
	}
	return out
}

func drawOptions(t *rapid.T) optest.Options {
	return optest.Options{
		Parallelism: rapid.IntRange(1, 3).Draw(t, "parallelism"),
		Groups:      rapid.SampledFrom([]int{1, 3, 8}).Draw(t, "groups"),
		Seed:        rapid.Uint64().Draw(t, "seed"),
		CommitEvery: rapid.IntRange(1, 6).Draw(t, "commit"),
		CrashEvery:  rapid.SampledFrom([]int{0, 5, 20}).Draw(t, "crash"),
		Budget:      rapid.SampledFrom([]int{0, 1, 60}).Draw(t, "budget"),
		Slots:       rapid.SampledFrom([]int{0, 2}).Draw(t, "slots"),
	}
}

func byKey(h *hit) string { return h.Key }

// windowsOf lists the windows that hold t by brute force: it tries them all.
func windowsOf(t int64, size, slide int64) (ends []int64) {
	for start := int64(-1000) * slide; start <= t; start += slide {
		if start <= t && t < start+size {
			ends = append(ends, start+size)
		}
	}
	return ends
}

func rowsOf(ks operators.KeyedStream[string, operators.Windowed[int64]], job *operators.Job, o optest.Options) (rows []string, r optest.Report, err error) {
	text := operators.Map(ks, func(kv *operators.KV[string, operators.Windowed[int64]]) string {
		return fmt.Sprintf("%s [%d,%d) %d", kv.Key, kv.Value.Start, kv.Value.End, kv.Value.Value)
	})
	out := optest.Collect[string](func(s *string) string { return string([]byte(*s)) })
	operators.ToSink(text, "out", out)
	plan, err := job.Plan()
	if err != nil {
		return nil, r, err
	}
	r, err = optest.Run(plan, o)
	rows = slices.Clone(out.Rows)
	slices.Sort(rows)
	return rows, r, err
}

func summing() operators.Aggregator[hit, int64] {
	return operators.Aggregator[hit, int64]{
		Add:   func(acc *int64, v *hit, _ int64) { *acc += v.N },
		Merge: func(acc, other *int64) { *acc += *other },
	}
}

// applySums is AggregateWindows of summing by ApplyWindows. A result whose items are not those of one
// window, in the order of their times, is wrong.
func applySums(in operators.KeyedStream[string, hit], win operators.Windows, size int64, opts ...operators.WindowOption) operators.KeyedStream[string, operators.Windowed[int64]] {
	return operators.ApplyWindows(in, win, func(key *string, items []operators.Elem[hit]) (sum int64) {
		for i := range items {
			sum += items[i].Value.N
			if items[i].Value.Key != *key || items[i].Time < items[max(i-1, 0)].Time || items[i].Time-items[0].Time >= size {
				return math.MinInt64
			}
		}
		return sum
	}, opts...)
}

// TestWindows: sums by key and window, directly and pre-aggregated, equal the plain loop's,
// whatever the disorder (within the delay), the batches, commits, crashes and interruptions of
// Advance.
func TestWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slide := rapid.SampledFrom([]int64{1, 4, 5, 10}).Draw(t, "slide")
		size := rapid.SampledFrom([]int64{1, 4, 10, 20}).Draw(t, "size")
		a, b := drawHits(t, "a", 40), drawHits(t, "b", 40)
		want := map[string]int64{}
		for _, x := range append(slices.Clone(a), b...) {
			for _, end := range windowsOf(x.Time, size, slide) {
				want[fmt.Sprintf("%s [%d,%d)", x.Value.Key, end-size, end)] += x.Value.N
			}
		}
		var expected []string
		for k, n := range want {
			expected = append(expected, fmt.Sprint(k, " ", n))
		}
		slices.Sort(expected)

		job := operators.NewJob("windows")
		src := operators.FromSource(job, "src", optest.Items(disorder, a, b), hitSerde)
		win := operators.Sliding(time.Duration(size)*time.Millisecond, time.Duration(slide)*time.Millisecond)
		var ks operators.KeyedStream[string, operators.Windowed[int64]]
		switch rapid.SampledFrom([]string{"keyby", "local", "hot", "apply"}).Draw(t, "exchange") {
		case "local":
			ks = operators.CombineWindows(operators.PreAggregate(src, "k", serde.String, byKey, win, summing()))
		case "hot":
			ks = operators.CombineWindows(operators.PreAggregate(src, "k", serde.String, byKey, win, summing(), operators.Hot()))
		case "apply":
			ks = applySums(operators.KeyBy(src, "k", serde.String, byKey), win, size)
		default:
			ks = operators.AggregateWindows(operators.KeyBy(src, "k", serde.String, byKey), win, summing())
		}
		rows, report, err := rowsOf(ks, job, drawOptions(t))
		require.NoError(t, err)
		require.Equal(t, expected, rows)
		require.Zero(t, report.Late)
		requireNoState(t, report, false)
	})
}

// TestWindowsLate: with lateness, every item counts whose last window is still within it, the last
// result of a window has all of them, and the others are counted as late. One task each, commits at
// every step: only then is lateness a function of the input alone.
func TestWindowsLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size, slide = 10, 5
		lateness := rapid.SampledFrom([]int64{0, 3, 30}).Draw(t, "lateness")
		eager := rapid.Bool().Draw(t, "eager")
		items := drawHits(t, "a", 60)
		job := operators.NewJob("late")
		src := operators.FromSource(job, "src", optest.Items(0, items), hitSerde)
		opts := []operators.WindowOption{operators.Lateness(time.Duration(lateness) * time.Millisecond)}
		if eager {
			opts = append(opts, operators.Emit(operators.Eager))
		}
		in, win := operators.KeyBy(src, "k", serde.String, byKey), operators.Sliding(size*time.Millisecond, slide*time.Millisecond)
		var ks operators.KeyedStream[string, operators.Windowed[int64]]
		if rapid.Bool().Draw(t, "apply") {
			ks = applySums(in, win, size, opts...)
		} else {
			ks = operators.AggregateWindows(in, win, summing(), opts...)
		}
		out := optest.Collect(func(kv *operators.KV[string, operators.Windowed[int64]]) operators.KV[string, operators.Windowed[int64]] {
			kv.Key = string([]byte(kv.Key))
			return *kv
		})
		operators.ToSink(ks, "out", out)
		plan, err := job.Plan()
		require.NoError(t, err)
		report, err := optest.Run(plan, optest.Options{CommitEvery: 1, Seed: rapid.Uint64().Draw(t, "seed"), CrashEvery: 9})
		require.NoError(t, err)

		// The same reads as the source makes: the watermark moves behind each.
		type window struct {
			key string
			end int64
		}
		want, late, w := map[window]int64{}, 0, int64(math.MinInt64)
		for pos := 0; pos < len(items); {
			n := min(1+pos%5, len(items)-pos)
			for _, x := range items[pos : pos+n] {
				counted := false
				for _, end := range windowsOf(x.Time, size, slide) {
					// A window that had closed when the item came accepts it only within the
					// lateness; the pane it falls in is shared.
					if end+lateness > w {
						want[window{x.Value.Key, end}] += x.Value.N
						counted = true
					}
				}
				if !counted {
					late++
				}
			}
			for _, x := range items[pos : pos+n] {
				w = max(w, x.Time)
			}
			pos += n
		}
		got := map[window]int64{}
		for i, kv := range out.Rows {
			got[window{kv.Key, kv.Value.End}] = kv.Value.Value
			if !eager {
				require.GreaterOrEqual(t, out.Times[i], kv.Value.End-1)
			}
		}
		require.Equal(t, late, report.Late)
		requireNoState(t, report, false)
		require.Equal(t, want, got)
	})
}
