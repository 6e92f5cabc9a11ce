package query

import (
	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// q1: every bid, with its price in euro.
func q1(events operators.Stream[event.Raw], _ Params, out Output) {
	rows := operators.FilterMap(events, func(r *event.Raw) (event.Q1Row, bool) {
		if r.Type() != event.TypeBid {
			return event.Q1Row{}, false
		}
		b := must(event.DecodeBid(*r))
		return event.Q1Row{Auction: b.Auction, Bidder: b.Bidder, Price: b.Price, Time: b.Time, Extra: b.Extra}, true
	}).With(q1Serde{})
	Emit(rows, out, func(dst []byte, row *event.Q1Row) []byte { return row.AppendJSON(dst) })
}

type q1Serde struct{}

func (q1Serde) Name() string { return "q1 row" }

func (q1Serde) Append(dst []byte, r *event.Q1Row) []byte {
	dst = serde.AppendInt64(dst, r.Auction)
	dst = serde.AppendInt64(dst, r.Bidder)
	dst = serde.AppendInt64(dst, r.Price)
	dst = serde.AppendInt64(dst, r.Time)
	return serde.AppendString(dst, r.Extra)
}

func (q1Serde) Decode(src []byte, r *event.Q1Row) (int, error) {
	d := serde.ReaderOf(src)
	r.Auction, r.Bidder, r.Price, r.Time, r.Extra = d.Int64(), d.Int64(), d.Int64(), d.Int64(), d.String()
	return d.Pos(), d.Err()
}
