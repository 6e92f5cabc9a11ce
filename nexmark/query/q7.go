package query

import (
	"strings"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// bid is the part of a bid that query 7 uses.
type bid struct {
	Auction, Bidder, Price, Time int64
	Extra                        string
}

// highest is the bids of the highest price, including all ties.
type highest []bid

var highestSerde = serde.New("highest bids", func(dst []byte, h *highest) []byte {
	dst = serde.AppendUint64(dst, uint64(len(*h)))
	for i := range *h {
		b := &(*h)[i]
		dst = serde.AppendInt64(dst, b.Auction)
		dst = serde.AppendInt64(dst, b.Bidder)
		dst = serde.AppendInt64(dst, b.Price)
		dst = serde.AppendInt64(dst, b.Time)
		dst = serde.AppendString(dst, b.Extra)
	}
	return dst
}, func(d *serde.Reader, h *highest) {
	*h = nil
	for n := d.Uint64(); n > 0 && d.Err() == nil; n-- {
		*h = append(*h, bid{d.Int64(), d.Int64(), d.Int64(), d.Int64(), d.String()})
	}
})

func (h *highest) add(b *bid) {
	if len(*h) > 0 && b.Price < (*h)[0].Price {
		return
	}
	keep := *b
	keep.Extra = strings.Clone(b.Extra) // few bids reach this point
	if len(*h) > 0 && b.Price > (*h)[0].Price {
		*h = nil
	}
	*h = append((*h)[:len(*h):len(*h)], keep)
}

// q7: the bids of the highest price of each window. Each task that reads bids finds its maximum of
// each window first, so the one task that owns the window receives only a few bids a commit.
func q7(events operators.Stream[event.Raw], p Params, out Output) {
	bids := operators.FilterMap(events, func(r *event.Raw) (bid, bool) {
		if r.Type() != event.TypeBid {
			return bid{}, false
		}
		b := must(event.DecodeBid(*r))
		return bid{b.Auction, b.Bidder, b.Price, b.Time, b.Extra}, true
	})
	found := operators.PreAggregate(bids, "highest", serde.Int64, func(*bid) int64 { return 0 },
		operators.Tumbling(p.Q7Window), operators.Aggregator[bid, highest]{
			Acc: highestSerde,
			Add: func(h *highest, b *bid, _ int64) { h.add(b) },
			Merge: func(h, o *highest) {
				for i := range *o {
					h.add(&(*o)[i])
				}
			},
		})
	windows := operators.CombineWindows(found, operators.Emit(p.Emission))
	rows := operators.FlatMap(windows, func(w *operators.KV[int64, operators.Windowed[highest]], emit func(event.Q7Row)) {
		for _, b := range w.Value.Value {
			emit(event.Q7Row{Start: w.Value.Start, End: w.Value.End, Auction: b.Auction, Bidder: b.Bidder, Price: b.Price, Time: b.Time, Extra: b.Extra})
		}
	}).With(serde.New("q7 row", func(dst []byte, r *event.Q7Row) []byte {
		for _, v := range [...]int64{r.Start, r.End, r.Auction, r.Bidder, r.Price, r.Time} {
			dst = serde.AppendInt64(dst, v)
		}
		return serde.AppendString(dst, r.Extra)
	}, func(d *serde.Reader, r *event.Q7Row) {
		r.Start, r.End, r.Auction, r.Bidder, r.Price, r.Time, r.Extra =
			d.Int64(), d.Int64(), d.Int64(), d.Int64(), d.Int64(), d.Int64(), d.String()
	}))
	Emit(rows, out, func(dst []byte, row *event.Q7Row) []byte { return row.AppendJSON(dst) })
}
