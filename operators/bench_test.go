package operators_test

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

// bid has the shape of NEXMark's: four numbers and two strings, 100 bytes.
type bid struct {
	Auction, Bidder, Price, Time int64
	Channel, Extra               string
}

// bidSerde is written by hand, without New, because that is faster.
type bidSerde struct{}

func (bidSerde) Append(dst []byte, b *bid) []byte {
	dst = serde.AppendInt64(dst, b.Auction)
	dst = serde.AppendInt64(dst, b.Bidder)
	dst = serde.AppendInt64(dst, b.Price)
	dst = serde.AppendInt64(dst, b.Time)
	dst = serde.AppendString(dst, b.Channel)
	return serde.AppendString(dst, b.Extra)
}

func (bidSerde) Decode(src []byte, b *bid) (int, error) {
	r := serde.ReaderOf(src)
	b.Auction, b.Bidder, b.Price, b.Time = r.Int64(), r.Int64(), r.Int64(), r.Int64()
	b.Channel, b.Extra = r.String(), r.String()
	return r.Pos(), r.Err()
}

type benchRuntime struct {
	outs []*exec.Output
}

func (r *benchRuntime) Home(int) exec.Home        { return nil }
func (r *benchRuntime) Task() (int, int)          { return 0, 1 }
func (r *benchRuntime) Groups() int               { return 64 }
func (r *benchRuntime) OutputGroups(int) int      { return 64 }
func (r *benchRuntime) Promises(int) []int64      { return nil }
func (r *benchRuntime) Output(i int) *exec.Output { return r.outs[i] }
func (r *benchRuntime) Now() int64                { return 0 }
func (r *benchRuntime) Random() uint64            { return 0 }
func (r *benchRuntime) Fence() operators.Fence    { return operators.Fence{} }
func (r *benchRuntime) Arrived(int64)             {}
func (r *benchRuntime) Late(int)                  {}
func (r *benchRuntime) Count(string, int64)       {}

const benchItems = 4096

// benchStage passes sections of 4096 bids through the stage that reads stream "in", with a commit
// after each; time advances by 1 ms an item.
func benchStage(b *testing.B, build func(in operators.KeyedStream[int64, bid])) {
	job := operators.NewJob("bench")
	src := operators.FromSource[bid](job, "src", optest.Items[bid](0, nil), bidSerde{})
	build(operators.KeyBy(src, "in", serde.Int64, func(b *bid) int64 { return b.Auction }))
	plan, err := job.Plan()
	require.NoError(b, err)
	rt := &benchRuntime{}
	for range plan.Stages[1].Outputs {
		rt.outs = append(rt.outs, exec.NewOutput(64))
	}
	c, err := plan.Stages[1].New(rt)
	require.NoError(b, err)
	changes := exec.NewOutput(64)

	encode := func(round int64) []byte {
		var payload []byte
		last := int64(0)
		for i := range int64(benchItems) {
			t := round*benchItems + i
			x := bid{1000 + i%100, i, 100 * i, t, "Baidu", fmt.Sprintf("%060d", i)}
			payload = serde.AppendInt64(payload, t-last)
			last = t
			payload = serde.AppendInt64(payload, x.Auction)
			payload = bidSerde{}.Append(payload, &x)
		}
		return payload
	}
	payload := encode(0)
	first := len(serde.AppendInt64(nil, 0))
	var head []byte
	section := make([]byte, 0, len(payload)+16)
	round := int64(0)
	one := func() {
		// The same items, later: only the first time is absolute.
		head = serde.AppendInt64(head[:0], round*benchItems)
		section = append(append(section[:0], head...), payload[first:]...)
		_, err := c.Process(&exec.In{Group: 7, Items: benchItems}, section, exec.Budget{})
		require.NoError(b, err)
		_, err = c.Advance(exec.Bounds{Time: round * benchItems}, exec.Budget{})
		require.NoError(b, err)
		require.NoError(b, c.Flush())
		for i, t := range c.Tables() {
			t.Changes(i, changes)
		}
		changes.Reset()
		for _, o := range rt.outs {
			o.Reset()
		}
		round++
	}
	for range 20 {
		one()
	}
	b.ReportAllocs()
	b.ResetTimer()
	n := 0
	for b.Loop() {
		one()
		n += benchItems
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/event")
}

// BenchmarkFilterMap: decode, filter (all pass), map, encode.
func BenchmarkFilterMap(b *testing.B) {
	benchStage(b, func(in operators.KeyedStream[int64, bid]) {
		some := operators.FilterValues(in, func(_ *int64, b *bid) bool { return b.Price >= 0 })
		euro := operators.Map(some, func(kv *operators.KV[int64, bid]) bid {
			x := kv.Value
			x.Price = x.Price * 908 / 1000
			return x
		}).With(bidSerde{})
		operators.ToSink(euro, "out", nothing[bid]())
	})
}

// BenchmarkCount: decode, count by key (100 keys), changes at the commit.
func BenchmarkCount(b *testing.B) {
	benchStage(b, func(in operators.KeyedStream[int64, bid]) {
		operators.ToSink(operators.Count(in), "out", nothing[operators.Change[int64, int64]]())
	})
}

// BenchmarkCountWindows: decode, count by key and sliding window.
func BenchmarkCountWindows(b *testing.B) {
	benchStage(b, func(in operators.KeyedStream[int64, bid]) {
		counts := operators.CountWindows(in, operators.Sliding(10*time.Second, 2*time.Second))
		operators.ToSink(counts, "out", nothing[operators.KV[int64, operators.Windowed[int64]]]())
	})
}

// BenchmarkGlobalMerge: decode, count by key before a repartition, what changed at the commit.
func BenchmarkGlobalMerge(b *testing.B) {
	benchStage(b, func(in operators.KeyedStream[int64, bid]) {
		counts := operators.GlobalMerge(in, "counts", serde.Int64, func(kv *operators.KV[int64, bid]) int64 { return kv.Key }, operators.Counting[operators.KV[int64, bid]](), nil)
		operators.ToSink(counts, "out", nothing[operators.Change[int64, int64]]())
	})
}

// BenchmarkPreAggregate: decode, count by key and pane before a repartition.
func BenchmarkPreAggregate(b *testing.B) {
	benchStage(b, func(in operators.KeyedStream[int64, bid]) {
		panes := operators.PreAggregate(in, "panes", serde.Int64, func(kv *operators.KV[int64, bid]) int64 { return kv.Key },
			operators.Sliding(10*time.Second, 2*time.Second), operators.Counting[operators.KV[int64, bid]]())
		operators.ToSink(operators.CombineWindows(panes), "out", nothing[operators.KV[int64, operators.Windowed[int64]]]())
	})
}

// BenchmarkSkewed: decode, count by key before a repartition: half of the items have one key, the others a key of their own.
func BenchmarkSkewed(b *testing.B) {
	type in = operators.KV[int64, bid]
	key := func(kv *in) int64 { return kv.Value.Bidder * (kv.Value.Bidder % 2) }
	b.Run("keyby", func(b *testing.B) {
		benchStage(b, func(in operators.KeyedStream[int64, bid]) {
			operators.ToSink(operators.Count(operators.KeyBy(in, "keys", serde.Int64, key)), "out", nothing[operators.Change[int64, int64]]())
		})
	})
	for name, opts := range map[string][]operators.RouteOption{"local": nil, "hot": {operators.Hot()}} {
		b.Run(name, func(b *testing.B) {
			benchStage(b, func(s operators.KeyedStream[int64, bid]) {
				panes := operators.PreAggregate(s, "panes", serde.Int64, key, operators.Tumbling(10*time.Second), operators.Counting[in](), opts...)
				operators.ToSink(operators.CombineWindows(panes), "out", nothing[operators.KV[int64, operators.Windowed[int64]]]())
			})
		})
	}
}
