package watermark_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// BenchmarkLate: the stage behind a KeyBy alone, as Trilink's Table 10 has it: the clocks of half of the keys are slow by four
// fifths of a window, and the watermark is that of the others. Sums are added to; lists, which are accumulators, and the items of
// ApplyWindows are added up for each result. With a
// clock for each key nothing is late; with the task's each late item has a result (each), or those of a commit have one.
func BenchmarkLate(b *testing.B) {
	for _, items := range []int{670, 2000, 6670} {
		for _, results := range []string{"sum", "list", "items"} {
			for _, mode := range []string{"key", "commit", "each"} {
				b.Run(fmt.Sprintf("%s/%d/%s", results, items, mode), func(b *testing.B) {
					s := newLateStage(b, items, results, mode)
					for s.now < 3*int64(items) {
						s.one(b)
					}
					b.ResetTimer()
					n := 0
					for b.Loop() {
						s.one(b)
						n += lateCommit * s.keys
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/item")
				})
			}
		}
	}
}

// newLateStage returns a stage whose windows have so many items of each key, 1 ms apart.
func newLateStage(t require.TestingT, items int, results, mode string) *lateStage {
	job := operators.NewJob("bench")
	src := operators.FromSource(job, "src", optest.Items[int64](0, nil), serde.Int64)
	per := operators.WatermarkPer(operators.Task, 0)
	opts := []operators.WindowOption{operators.Lateness(time.Duration(items) * time.Millisecond)}
	switch mode {
	case "key":
		per = operators.WatermarkPer(operators.Key, 0)
	case "each":
		opts = append(opts, operators.EachLate())
	}
	in := operators.KeyBy(src, "in", serde.Int64, func(v *int64) int64 { return *v }, per)
	win := operators.Tumbling(time.Duration(items) * time.Millisecond)
	var sums operators.Stream[int64]
	switch results {
	case "items":
		sums = operators.Map(operators.ApplyWindows(in, win, func(_ *int64, items []operators.Elem[int64]) (sum int64) {
			for i := range items {
				sum += items[i].Value
			}
			return sum
		}, opts...), func(w *operators.KV[int64, operators.Windowed[int64]]) int64 { return w.Value.Value })
	case "list":
		sums = operators.Map(operators.AggregateWindows(in, win, operators.Aggregator[int64, []int64]{
			Add: func(acc *[]int64, v *int64, _ int64) { *acc = append(*acc, *v) },
			Acc: serde.Slice(serde.Int64),
		}, opts...), func(w *operators.KV[int64, operators.Windowed[[]int64]]) (sum int64) {
			for _, n := range w.Value.Value {
				sum += n
			}
			return sum
		})
	default:
		sums = operators.Map(operators.AggregateWindows(in, win, operators.Aggregator[int64, int64]{
			Add: func(acc *int64, v *int64, _ int64) { *acc += *v },
		}, opts...), func(w *operators.KV[int64, operators.Windowed[int64]]) int64 { return w.Value.Value })
	}
	operators.ToSink(sums.With(serde.Int64), "out", operators.FuncSink(func(*operators.Batch[int64]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	const keys = 300
	s := &lateStage{rt: &benchRuntime{outs: []*exec.Output{exec.NewOutput(64)}}, changes: exec.NewOutput(64), keys: keys, behind: int64(items) * 4 / 5, in: exec.In{Group: 7, Items: keys}}
	s.now = s.behind
	s.c, err = plan.Stages[1].New(s.rt)
	require.NoError(t, err)
	return s
}

// lateCommit is how many items of each key a commit has: about what kw has of 3000 keys at 6 M items/s in 100 ms.
const lateCommit = 200

type lateStage struct {
	c       exec.Chain
	rt      *benchRuntime
	changes *exec.Output
	section []byte
	in      exec.In
	keys    int
	behind  int64 // of every other key, in ms
	now     int64
}

// one processes what a commit has, and commits.
func (s *lateStage) one(t require.TestingT) {
	for range lateCommit {
		s.section = s.section[:0]
		last := int64(0)
		for i := range int64(s.keys) {
			at := s.now - i%2*s.behind
			s.section = serde.AppendInt64(serde.AppendInt64(serde.AppendInt64(s.section, at-last), i), i)
			last = at
		}
		if _, err := s.c.Process(&s.in, s.section, exec.Budget{}); err != nil {
			require.NoError(t, err)
		}
		s.now++
	}
	if _, err := s.c.Advance(exec.Bounds{Time: s.now}, exec.Budget{}); err != nil {
		require.NoError(t, err)
	}
	if err := s.c.Flush(); err != nil {
		require.NoError(t, err)
	}
	for i, table := range s.c.Tables() {
		table.Changes(i, s.changes)
	}
	s.changes.Reset()
	for _, out := range s.rt.outs {
		out.Reset()
	}
}
