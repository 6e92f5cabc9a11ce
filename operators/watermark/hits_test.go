package watermark_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
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
		Parallelism: rapid.IntRange(1, 4).Draw(t, "parallelism"),
		Groups:      rapid.SampledFrom([]int{1, 3, 8}).Draw(t, "groups"),
		Seed:        rapid.Uint64().Draw(t, "seed"),
		CommitEvery: rapid.IntRange(1, 6).Draw(t, "commit"),
		CrashEvery:  rapid.SampledFrom([]int{0, 5, 20}).Draw(t, "crash"),
		Budget:      rapid.SampledFrom([]int{0, 1, 60}).Draw(t, "budget"),
		Slots:       rapid.SampledFrom([]int{0, 2}).Draw(t, "slots"),
	}
}

// grain is which keys share a clock in a test, and the delay.
type grain struct {
	n      int // 0: each key has its own
	groups int
	delay  int64
}

// drawGrain draws clocks for a stage of this number of key groups.
func drawGrain(t *rapid.T, groups int) grain {
	return grain{rapid.SampledFrom([]int{0, 0, 1, 2, 16}).Draw(t, "clocks of a group"), groups, rapid.SampledFrom([]int64{0, 2, disorder}).Draw(t, "delay")}
}

func (g grain) option() operators.RouteOption {
	if g.n > 0 {
		return operators.WatermarkPer(operators.Keys(g.n), milliseconds(g.delay))
	}
	return operators.WatermarkPer(operators.Key, milliseconds(g.delay))
}

// clock names the clock of a key.
func (g grain) clock(key string) string {
	if g.n == 0 {
		return key
	}
	hash := exec.HashKey(serde.String.Append(nil, &key))
	return fmt.Sprint(exec.GroupOf(hash, g.groups), exec.SubGroupOf(hash, g.groups, g.n))
}

// drawParts is drawPaths; for clocks that keys share all items are in one partition, so that their order
// is the same in every run.
func (g grain) drawParts(t *rapid.T) [][]optest.Timed[hit] {
	parts := drawPaths(t)
	if g.n == 0 {
		return parts
	}
	var all []optest.Timed[hit]
	for len(parts) > 0 {
		p := rapid.IntRange(0, len(parts)-1).Draw(t, "whose turn")
		if len(parts[p]) == 0 {
			parts = slices.Delete(parts, p, p+1)
			continue
		}
		all = append(all, parts[p][0])
		parts[p] = parts[p][1:]
	}
	return [][]optest.Timed[hit]{all}
}

// disorder is how far an item may be behind the ones before it in its partition.
func behind(parts [][]optest.Timed[hit]) (most int64) {
	for _, part := range parts {
		newest := int64(exec.MinTime)
		for _, x := range part {
			newest = max(newest, x.Time)
			most = max(most, newest-x.Time)
		}
	}
	return most
}

func byKey(h *hit) string    { return h.Key }
func showHit(h *hit) string  { return fmt.Sprint(h.Key, " ", h.N) }
func clone(s *string) string { return strings.Clone(*s) }

// windowsOf lists the windows that hold t by brute force: it tries them all.
func windowsOf(t int64, size, slide int64) (ends []int64) {
	for start := int64(-1000) * slide; start <= t; start += slide {
		if start <= t && t < start+size {
			ends = append(ends, start+size)
		}
	}
	return ends
}

func summing() operators.Aggregator[hit, int64] {
	return operators.Aggregator[hit, int64]{
		Add:   func(acc *int64, v *hit, _ int64) { *acc += v.N },
		Merge: func(acc, other *int64) { *acc += *other },
	}
}

func windowRows(ks operators.KeyedStream[string, operators.Windowed[int64]]) operators.Flow[string] {
	return operators.Map(ks, func(kv *operators.KV[string, operators.Windowed[int64]]) string {
		return fmt.Sprintf("%s [%d,%d) %d", kv.Key, kv.Value.Start, kv.Value.End, kv.Value.Value)
	})
}

func runRows(t require.TestingT, job *operators.Job, rows operators.Flow[string], o optest.Options) ([]string, optest.Report) {
	out := optest.Collect(clone)
	operators.ToSink(rows, "out", out)
	plan, err := job.Plan()
	require.NoError(t, err)
	report, err := optest.Run(plan, o)
	require.NoError(t, err)
	got := slices.Clone(out.Rows)
	slices.Sort(got)
	return got, report
}
