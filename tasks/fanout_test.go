package tasks_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// fanOut is a job that makes many items of few. items is the number of inputs of size bytes; want
// is the number of rows, where a row is the sum of numbers in the items it made.
type fanOut struct {
	name  string
	size  int
	items int
	build func(job *operators.Job, f *fanOut, out operators.Sink[int64])
	want  func(f *fanOut) map[int64]int
}

// big is an item with a number and padding.
type big struct {
	N    int64
	Data string
}

var bigSerde = serde.New("big",
	func(dst []byte, b *big) []byte { return serde.AppendString(serde.AppendInt64(dst, b.N), b.Data) },
	func(r *serde.Reader, b *big) { b.N, b.Data = r.Int64(), r.String() })

func (f *fanOut) source(job *operators.Job, name string, n int) operators.Stream[big] {
	var in []optest.Timed[big]
	for i := range n {
		in = append(in, optest.At(int64(i), big{int64(i), strings.Repeat(string(rune('a'+i%26)), f.size)}))
	}
	return operators.FromSource[big](job, name, greedy[big]{optest.Items(0, in)}, bigSerde)
}

// greedy is a source that returns as many items as it may, whatever their size.
type greedy[T any] struct{ operators.Source[T] }

func (s greedy[T]) Open(p int) (operators.Partition[T], error) {
	of, err := s.Source.Open(p)
	return greedyPartition[T]{of}, err
}

type greedyPartition[T any] struct{ operators.Partition[T] }

func (p greedyPartition[T]) Read(b *operators.Batch[T], most int, now int64) (operators.Status, error) {
	for {
		st, err := p.Partition.Read(b, most-b.Len(), now)
		if err != nil || st.State != operators.More || b.Len() == most {
			return st, err
		}
	}
}

func one(*big) int64 { return 1 }

// rows ends a flow in the sink: each item as its number, after a stream that carries the whole
// item.
func rows(in operators.Flow[big], out operators.Sink[int64]) {
	whole := operators.Rebalance(in, "whole")
	operators.ToSink(operators.Map(whole, func(b *big) int64 { return b.N }), "out", out)
}

// each is n rows of every number below m.
func each(m, n int) map[int64]int {
	all := map[int64]int{}
	for i := range m {
		all[int64(i)] = n
	}
	return all
}

var fanOuts = []fanOut{
	{
		// Large items of a source: a batch of them exceeds a group.
		name: "source", size: 100_000, items: 200,
		build: func(job *operators.Job, f *fanOut, out operators.Sink[int64]) {
			rows(f.source(job, "in", f.items), out)
		},
		want: func(f *fanOut) map[int64]int { return each(f.items, 1) },
	},
	{
		// Many small items, each expanded to forty; a record of them yields forty times its size.
		name: "explode", size: 1_000, items: 500,
		build: func(job *operators.Job, f *fanOut, out operators.Sink[int64]) {
			rows(operators.FlatMap(operators.Rebalance(f.source(job, "in", f.items), "spread"), times(40)).With(bigSerde), out)
		},
		want: func(f *fanOut) map[int64]int { return each(f.items, 40) },
	},
	{
		// A single item yields more than a group.
		name: "one item", size: 100_000, items: 3,
		build: func(job *operators.Job, f *fanOut, out operators.Sink[int64]) {
			rows(operators.FlatMap(operators.Rebalance(f.source(job, "in", f.items), "spread"), times(250)).With(bigSerde), out)
		},
		want: func(f *fanOut) map[int64]int { return each(f.items, 250) },
	},
	{
		name: "one item of a source", size: 100_000, items: 3,
		build: func(job *operators.Job, f *fanOut, out operators.Sink[int64]) {
			rows(operators.FlatMap(f.source(job, "in", f.items), times(250)).With(bigSerde), out)
		},
		want: func(f *fanOut) map[int64]int { return each(f.items, 250) },
	},
	{
		// All items of one key join.
		name: "hot join", size: 1_000, items: 150,
		build: func(job *operators.Job, f *fanOut, out operators.Sink[int64]) {
			left := operators.KeyBy(f.source(job, "l", f.items), "lk", serde.Int64, one)
			right := operators.KeyBy(f.source(job, "r", f.items), "rk", serde.Int64, one)
			joined := operators.JoinStreams(left, right, "join", operators.Forever, func(_ *int64, l, _ *big) big { return *l })
			rows(operators.Map(joined, func(kv *operators.KV[int64, big]) big { return kv.Value }).With(bigSerde), out)
		},
		want: func(f *fanOut) map[int64]int { return each(f.items, f.items) },
	},
	{
		// The same in one window: one timer makes all pairs, and removes all items.
		name: "one timer", size: 1_000, items: 150,
		build: func(job *operators.Job, f *fanOut, out operators.Sink[int64]) {
			left := operators.KeyBy(f.source(job, "l", f.items), "lk", serde.Int64, one)
			right := operators.KeyBy(f.source(job, "r", f.items), "rk", serde.Int64, one)
			joined := operators.JoinWindows(left, right, "join", operators.Tumbling(time.Hour), func(_ *int64, _, _ int64, l, _ *big) big { return *l })
			rows(operators.Map(joined, func(kv *operators.KV[int64, big]) big { return kv.Value }).With(bigSerde), out)
		},
		want: func(f *fanOut) map[int64]int { return each(f.items, f.items) },
	},
	{
		// Large accumulators, all emitted and logged at a commit.
		name: "accumulators", size: 100_000, items: 200,
		build: func(job *operators.Job, f *fanOut, out operators.Sink[int64]) {
			in := operators.KeyBy(f.source(job, "in", f.items), "k", serde.Int64, func(b *big) int64 { return b.N })
			last := operators.Aggregate(in, operators.Aggregator[big, big]{
				Add: func(acc, b *big, _ int64) { *acc = *b }, Acc: bigSerde, Keeps: true,
			})
			rows(operators.Map(last, func(c *operators.Change[int64, big]) big { return c.Value }).With(bigSerde), out)
		},
		want: func(f *fanOut) map[int64]int { return each(f.items, 1) },
	},
	{
		// One item changes more state than a group holds, and one timer removes it.
		name: "state", size: 20_000, items: 8,
		build: func(job *operators.Job, f *fanOut, out operators.Sink[int64]) {
			in := operators.KeyBy(f.source(job, "in", f.items), "k", serde.Int64, func(b *big) int64 { return b.N % 2 })
			kept := operators.Process(in, "keep", func(c *operators.Context[int64, int64]) operators.Handler[big] {
				all := operators.NewList(c, "all", bigSerde)
				return operators.Handler[big]{
					Item: func(b *big) {
						for range 600 {
							all.Add(c.Time(), b)
						}
						c.SetEventTimer(1 << 60)
					},
					Timers: operators.Timers{OnEvent: func(t int64) {
						c.Emit(int64(len(all.All())), t)
						all.Delete()
					}},
				}
			})
			operators.ToSink(operators.Map(kept, func(kv *operators.KV[int64, int64]) int64 { return kv.Value }), "out", out)
		},
		want: func(f *fanOut) map[int64]int { return map[int64]int{int64(600 * f.items / 2): 2} },
	},
	{
		name: "partial results", size: 100_000, items: 200,
		build: func(job *operators.Job, f *fanOut, out operators.Sink[int64]) {
			panes := operators.PreAggregate(f.source(job, "in", f.items), "panes", serde.Int64, func(b *big) int64 { return b.N }, operators.Tumbling(time.Hour),
				operators.Aggregator[big, big]{
					Add: func(acc, b *big, _ int64) { *acc = *b }, Merge: func(acc, b *big) { *acc = *b }, Acc: bigSerde, Keeps: true,
				})
			rows(operators.Map(operators.CombineWindows(panes), func(kv *operators.KV[int64, operators.Windowed[big]]) big { return kv.Value.Value }).With(bigSerde), out)
		},
		want: func(f *fanOut) map[int64]int { return each(f.items, 1) },
	},
}

func times(n int) func(*big, func(big)) {
	return func(b *big, emit func(big)) {
		for range n {
			emit(*b)
		}
	}
}

var allProtocols = []string{"fused", "marker", "txn", "unsafe", "aligned", "aligned-early"}

func (f *fanOut) plan(t *testing.T) (*operators.Plan, *optest.Collector[int64]) {
	job := operators.NewJob("fan-out")
	out := optest.Collect[int64](nil)
	f.build(job, f, out)
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan, out
}

func count(rows []int64) map[int64]int {
	all := map[int64]int{}
	for _, n := range rows {
		all[n]++
	}
	return all
}

// No job makes a group that the log refuses, whatever it makes of its input.
func TestFanOut(t *testing.T) {
	for _, f := range fanOuts {
		for _, protocol := range allProtocols {
			t.Run(f.name+"/"+protocol, func(t *testing.T) {
				plan, out := f.plan(t)
				log := mem.New(mem.Options{})
				require.NoError(t, tasks.Run(t.Context(), log, plan, tasks.Options{
					Protocol: protocol, Parallelism: 1, Groups: 4, Checkpoints: storetest.NewMem(), TrimBytes: 1, TrimInterval: time.Millisecond, Logger: quiet,
				}))
				require.Equal(t, f.want(&f), count(out.Rows))
			})
		}
	}
}

// An item that no group can hold ends the job with an error that names the operator; an item that
// fills a group passes.
func TestTooLarge(t *testing.T) {
	for _, protocol := range allProtocols {
		t.Run(protocol, func(t *testing.T) {
			run := func(size int, build func(in operators.KeyedStream[string, big], out operators.Sink[int64])) ([]int64, error) {
				job := operators.NewJob("too-large")
				in := operators.FromSource(job, "in", optest.Items(0, []optest.Timed[int64]{optest.At(1, int64(7)), optest.At(2, int64(8))}), serde.Int64)
				made := operators.Map(operators.Rebalance(in, "spread"), func(n *int64) big { return big{*n, strings.Repeat("x", size)} }).With(bigSerde)
				out := optest.Collect[int64](nil)
				build(operators.KeyBy(made, "by-key", serde.String, func(b *big) string { return "a key" }), out)
				plan, err := job.Plan()
				require.NoError(t, err)
				err = tasks.Run(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{Protocol: protocol, Parallelism: 1, Groups: 4, Checkpoints: storetest.NewMem(), Logger: quiet})
				return out.Rows, err
			}
			number := func(in operators.KeyedStream[string, big], out operators.Sink[int64]) {
				operators.ToSink(operators.Map(in, func(kv *operators.KV[string, big]) int64 { return kv.Value.N }), "out", out)
			}
			rows, err := run(15<<20, number)
			require.NoError(t, err)
			require.Equal(t, []int64{7, 8}, rows)

			_, err = run(17<<20, number)
			require.ErrorContains(t, err, `stage "spread", task 0`)
			require.ErrorContains(t, err, `stream "by-key", key group 0, key "a key": the item has 17825804 bytes, a group of the log holds at most 16711680`)
			require.ErrorContains(t, err, "--on-error")

			if protocol == "unsafe" || strings.HasPrefix(protocol, "aligned") {
				return // no state in the log
			}
			_, err = run(9<<20, func(in operators.KeyedStream[string, big], out operators.Sink[int64]) {
				number(operators.Process(in, "keep", func(c *operators.Context[string, big]) operators.Handler[big] {
					all := operators.NewValue(c, "both", bigSerde)
					return operators.Handler[big]{Item: func(b *big) {
						v := all.Upsert()
						v.Data += b.Data
						c.Emit(big{N: b.N}, c.Time())
					}}
				}).With(bigSerde), out)
			})
			require.ErrorContains(t, err, `stage "by-key", task 0`)
			require.ErrorContains(t, err, `state "keep.both", key group 0, key "\x05a key": the change of its value has 188743`)
		})
	}
}
