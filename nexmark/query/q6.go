package query

import (
	"cmp"
	"slices"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// lastTen is a seller's newest ten sales, by (expires, auction).
type lastTen []sold

type sold struct{ Expires, Auction, Price int64 }

var lastTenSerde = serde.New("last ten", func(dst []byte, l *lastTen) []byte {
	dst = serde.AppendUint64(dst, uint64(len(*l)))
	for _, s := range *l {
		dst = serde.AppendInt64(dst, s.Expires)
		dst = serde.AppendInt64(dst, s.Auction)
		dst = serde.AppendInt64(dst, s.Price)
	}
	return dst
}, func(d *serde.Reader, l *lastTen) {
	*l = nil
	for n := d.Uint64(); n > 0 && d.Err() == nil; n-- {
		*l = append(*l, sold{d.Int64(), d.Int64(), d.Int64()})
	}
})

// add inserts a sale, or updates its price.
func (l *lastTen) add(s sold) {
	at, there := slices.BinarySearchFunc(*l, s, func(a, b sold) int {
		return cmp.Or(cmp.Compare(a.Expires, b.Expires), cmp.Compare(a.Auction, b.Auction))
	})
	if there {
		(*l)[at] = s
		return
	}
	*l = slices.Insert(*l, at, s)
	if len(*l) > 10 {
		*l = slices.Delete(*l, 0, 1)
	}
}

// q6: the mean of the winning prices of each seller's last ten closed auctions.
func q6(events operators.Stream[event.Raw], p Params, out Output) {
	bySeller := operators.KeyBy(winners(events, p), "by-seller", serde.Int64, func(s *sale) int64 { return s.Seller })
	last := operators.Aggregate(bySeller, operators.Aggregator[sale, lastTen]{
		Acc: lastTenSerde,
		Add: func(l *lastTen, s *sale, _ int64) { l.add(sold{s.Expires, s.Auction, s.Price}) },
	})
	rows := operators.Map(last, func(c *operators.Change[int64, lastTen]) event.Q6Row {
		row := event.Q6Row{Seller: c.Key, Count: int64(len(c.Value))}
		for _, s := range c.Value {
			row.Sum += s.Price
		}
		return row
	}).With(serde.New("q6 row", func(dst []byte, r *event.Q6Row) []byte {
		return meanSerde.Append(serde.AppendInt64(dst, r.Seller), &mean{r.Sum, r.Count})
	}, func(d *serde.Reader, r *event.Q6Row) { r.Seller, r.Sum, r.Count = d.Int64(), d.Int64(), d.Int64() }))
	Emit(rows, out, func(dst []byte, row *event.Q6Row) []byte { return row.AppendJSON(dst) })
}
