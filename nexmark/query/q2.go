package query

import (
	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// q2: the bids on auctions whose id divides by 123, or on those of the original
// list.
func q2(events operators.Stream[event.Raw], p Params, out Output) {
	chosen := func(auction int64) bool { return auction%123 == 0 }
	if p.Q2List {
		chosen = func(auction int64) bool {
			switch auction {
			case 1007, 1020, 2001, 2019, 2087:
				return true
			}
			return false
		}
	}
	rows := operators.FilterMap(events, func(r *event.Raw) (event.Q2Row, bool) {
		auction, bidder, price, isBid := event.BidKey(*r)
		if !isBid || !chosen(auction) {
			return event.Q2Row{}, false
		}
		return event.Q2Row{Auction: auction, Price: price, Bidder: bidder, Time: r.Time()}, true
	}).With(serde.New("q2 row", func(dst []byte, r *event.Q2Row) []byte {
		dst = serde.AppendInt64(dst, r.Auction)
		dst = serde.AppendInt64(dst, r.Price)
		dst = serde.AppendInt64(dst, r.Bidder)
		return serde.AppendInt64(dst, r.Time)
	}, func(d *serde.Reader, r *event.Q2Row) {
		r.Auction, r.Price, r.Bidder, r.Time = d.Int64(), d.Int64(), d.Int64(), d.Int64()
	}))
	Emit(rows, out, func(dst []byte, row *event.Q2Row) []byte { return row.AppendJSON(dst) })
}
