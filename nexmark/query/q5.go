package query

import (
	"slices"
	"time"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// hot is the auctions with the most bids, including all ties.
type hot struct {
	Num      int64
	Auctions []int64 // ascending
}

var hotSerde = serde.New("hot auctions", func(dst []byte, h *hot) []byte {
	dst = serde.AppendInt64(dst, h.Num)
	dst = serde.AppendUint64(dst, uint64(len(h.Auctions)))
	for _, a := range h.Auctions {
		dst = serde.AppendInt64(dst, a)
	}
	return dst
}, func(d *serde.Reader, h *hot) {
	h.Num, h.Auctions = d.Int64(), nil
	for n := d.Uint64(); n > 0 && d.Err() == nil; n-- {
		h.Auctions = append(h.Auctions, d.Int64())
	}
})

func (h *hot) add(auction, num int64) {
	switch {
	case num < h.Num:
		return
	case num > h.Num:
		h.Num, h.Auctions = num, append([]int64(nil), auction)
		return
	}
	if at, there := slices.BinarySearch(h.Auctions, auction); !there {
		h.Auctions = slices.Insert(slices.Clone(h.Auctions), at, auction)
	}
}

// q5: for each window of ten seconds, one beginning every two, the auctions with the most bids.
// Both steps pre-aggregate before their repartition: the first counts bids by auction and pane
// where they are read, and each task sends only its best counts of a window. (A count only grows,
// so with eager emission a smaller count that was sent before does no harm.)
func q5(events operators.Stream[event.Raw], p Params, out Output) {
	const size, slide = 10 * time.Second, 2 * time.Second
	bids := operators.FilterMap(events, func(r *event.Raw) (int64, bool) {
		auction, _, _, ok := event.BidKey(*r)
		return auction, ok
	})
	counted := operators.PreAggregate(bids, "counts", serde.Int64, func(a *int64) int64 { return *a },
		operators.Sliding(size, slide), operators.Counting[int64]())
	counts := operators.CombineWindows(counted, operators.Emit(p.Emission))

	type count = operators.KV[int64, operators.Windowed[int64]]
	// The results of a window have its end − 1 as their time, so the results of each window fall
	// into a slide of their own.
	best := operators.PreAggregate(counts, "best", serde.Int64, func(*count) int64 { return 0 },
		operators.Tumbling(slide), operators.Aggregator[count, hot]{
			Acc: hotSerde,
			Add: func(h *hot, c *count, _ int64) { h.add(c.Key, c.Value.Value) },
			Merge: func(h, o *hot) {
				for _, a := range o.Auctions {
					h.add(a, o.Num)
				}
			},
		})
	hottest := operators.CombineWindows(best, operators.Emit(p.Emission))
	rows := operators.FlatMap(hottest, func(w *operators.KV[int64, operators.Windowed[hot]], emit func(event.Q5Row)) {
		for _, a := range w.Value.Value.Auctions {
			emit(event.Q5Row{Start: w.Value.End - size.Milliseconds(), End: w.Value.End, Auction: a, Num: w.Value.Value.Num})
		}
	}).With(serde.New("q5 row", func(dst []byte, r *event.Q5Row) []byte {
		dst = serde.AppendInt64(dst, r.Start)
		dst = serde.AppendInt64(dst, r.End)
		dst = serde.AppendInt64(dst, r.Auction)
		return serde.AppendInt64(dst, r.Num)
	}, func(d *serde.Reader, r *event.Q5Row) {
		r.Start, r.End, r.Auction, r.Num = d.Int64(), d.Int64(), d.Int64(), d.Int64()
	}))
	Emit(rows, out, func(dst []byte, row *event.Q5Row) []byte { return row.AppendJSON(dst) })
}
