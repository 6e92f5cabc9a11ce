package query

import (
	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// lot is the part of an auction that queries 4 and 6 use.
type lot struct{ ID, Seller, Category, Opens, Expires int64 }

var lotSerde = serde.New("lot", func(dst []byte, l *lot) []byte {
	dst = serde.AppendInt64(dst, l.ID)
	dst = serde.AppendInt64(dst, l.Seller)
	dst = serde.AppendInt64(dst, l.Category)
	dst = serde.AppendInt64(dst, l.Opens)
	return serde.AppendInt64(dst, l.Expires)
}, func(d *serde.Reader, l *lot) {
	l.ID, l.Seller, l.Category, l.Opens, l.Expires = d.Int64(), d.Int64(), d.Int64(), d.Int64(), d.Int64()
})

// offer is the part of a bid that they use; its time is the item's.
type offer struct{ Auction, Price int64 }

type offerSerde struct{}

func (offerSerde) Name() string { return "offer" }

func (offerSerde) Append(dst []byte, o *offer) []byte {
	return serde.AppendInt64(serde.AppendInt64(dst, o.Auction), o.Price)
}

func (offerSerde) Decode(src []byte, o *offer) (int, error) {
	d := serde.ReaderOf(src)
	o.Auction, o.Price = d.Int64(), d.Int64()
	return d.Pos(), d.Err()
}

// sale is an auction with its best price so far. With First it is the first price of this auction,
// else it replaces the price Before.
type sale struct {
	Seller, Category, Auction, Expires, Price, Before int64
	First                                             bool
}

var saleSerde = serde.New("sale", func(dst []byte, s *sale) []byte {
	for _, v := range [...]int64{s.Seller, s.Category, s.Auction, s.Expires, s.Price, s.Before} {
		dst = serde.AppendInt64(dst, v)
	}
	return serde.AppendBool(dst, s.First)
}, func(d *serde.Reader, s *sale) {
	s.Seller, s.Category, s.Auction, s.Expires, s.Price, s.Before, s.First =
		d.Int64(), d.Int64(), d.Int64(), d.Int64(), d.Int64(), d.Int64(), d.Bool()
})

// bidding is the state of an open auction: the lot, and the best valid price so far.
type bidding struct {
	lot
	Sold  bool
	Price int64
}

var biddingSerde = serde.New("bidding", func(dst []byte, b *bidding) []byte {
	dst = lotSerde.Append(dst, &b.lot)
	dst = serde.AppendBool(dst, b.Sold)
	return serde.AppendInt64(dst, b.Price)
}, func(d *serde.Reader, b *bidding) {
	serde.Take(d, lotSerde, &b.lot)
	b.Sold, b.Price = d.Bool(), d.Int64()
})

// winners returns the sales of auctions: each once, when it closes, or (eager) each time its price
// rises.
//
// An auction closes at a watermark > expires; one without a valid bid is not a sale. A bid may
// precede its auction. It then waits until the watermark passes its own time: after that, an
// auction that opened in time for the bid would itself be late.
func winners(events operators.Stream[event.Raw], p Params) operators.Stream[sale] {
	lots := operators.FilterMap(events, func(r *event.Raw) (lot, bool) {
		if r.Type() != event.TypeAuction {
			return lot{}, false
		}
		a := must(event.DecodeAuction(*r))
		return lot{a.ID, a.Seller, a.Category, a.Time, a.Expires}, true
	}).With(lotSerde)
	offers := operators.FilterMap(events, func(r *event.Raw) (offer, bool) {
		auction, _, price, ok := event.BidKey(*r)
		return offer{auction, price}, ok
	}).With(offerSerde{})

	byLot := operators.KeyBy(lots, "lots", serde.Int64, func(l *lot) int64 { return l.ID })
	byOffer := operators.KeyBy(offers, "offers", serde.Int64, func(o *offer) int64 { return o.Auction })
	eager := p.Emission == operators.Eager
	sold := operators.Process2(byLot, byOffer, "winners", func(c *operators.Context[int64, sale]) operators.Handler2[lot, offer] {
		open := operators.NewValue(c, "open", biddingSerde)
		early := operators.NewList(c, "early", serde.Int64) // prices, by time

		take := func(b *bidding, price, t int64) {
			if t < b.Opens || t > b.Expires || b.Sold && price <= b.Price {
				return
			}
			s := sale{b.Seller, b.Category, b.ID, b.Expires, price, b.Price, !b.Sold}
			b.Sold, b.Price = true, price
			if eager {
				c.Emit(s, c.Time())
			}
		}
		return operators.Handler2[lot, offer]{
			Left: func(l *lot) {
				if l.Expires < c.Watermark() {
					c.Late()
					return
				}
				b := open.Upsert()
				*b = bidding{lot: *l}
				for _, o := range early.All() {
					take(b, o.Value, o.Time)
				}
				early.Delete()
				c.SetEventTimer(l.Expires + 1)
			},
			Right: func(o *offer) {
				if b := open.Get(); b != nil {
					if !b.Sold || o.Price > b.Price {
						take(open.Update(), o.Price, c.Time())
					}
					return
				}
				if c.Time() < c.Watermark() {
					c.Late()
					return
				}
				early.Add(c.Time(), &o.Price)
				c.SetEventTimer(c.Time() + 1)
			},
			Timers: operators.Timers{OnEvent: func(t int64) {
				early.DropBefore(t)
				b := open.Get()
				if b == nil || t <= b.Expires {
					return
				}
				if b.Sold && !eager {
					c.Emit(sale{b.Seller, b.Category, b.ID, b.Expires, b.Price, 0, true}, b.Expires)
				}
				open.Delete()
			}},
		}
	})
	return operators.Map(sold, func(kv *operators.KV[int64, sale]) sale { return kv.Value }).With(saleSerde)
}
