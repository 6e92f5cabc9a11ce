package query

import (
	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// local is what query 3 keeps of a person.
type local struct{ Name, City, State string }

var localSerde = serde.New("local seller", func(dst []byte, p *local) []byte {
	dst = serde.AppendString(dst, p.Name)
	dst = serde.AppendString(dst, p.City)
	return serde.AppendString(dst, p.State)
}, func(d *serde.Reader, p *local) {
	p.Name, p.City, p.State = d.String(), d.String(), d.String()
})

// listing is an auction of query 3.
type listing struct{ ID, Seller int64 }

var listingSerde = serde.New("listing", func(dst []byte, l *listing) []byte {
	return serde.AppendInt64(serde.AppendInt64(dst, l.ID), l.Seller)
}, func(d *serde.Reader, l *listing) { l.ID, l.Seller = d.Int64(), d.Int64() })

// seller is a person as sent to the join.
type seller struct {
	ID int64
	local
}

var sellerSerde = serde.New("seller", func(dst []byte, s *seller) []byte {
	return localSerde.Append(serde.AppendInt64(dst, s.ID), &s.local)
}, func(d *serde.Reader, s *seller) {
	s.ID = d.Int64()
	serde.Take(d, localSerde, &s.local)
})

// q3: the auctions of category 10 whose seller lives in OR, ID or CA. Either side may come first,
// by any distance; a person has any number of auctions.
func q3(events operators.Stream[event.Raw], _ Params, out Output) {
	sellers := operators.FilterMap(events, func(r *event.Raw) (seller, bool) {
		if r.Type() != event.TypePerson {
			return seller{}, false
		}
		p := must(event.DecodePerson(*r))
		return seller{p.ID, local{p.Name, p.City, p.State}}, p.State == "OR" || p.State == "ID" || p.State == "CA"
	}).With(sellerSerde)
	listings := operators.FilterMap(events, func(r *event.Raw) (listing, bool) {
		if r.Type() != event.TypeAuction {
			return listing{}, false
		}
		a := must(event.DecodeAuction(*r))
		return listing{a.ID, a.Seller}, a.Category == 10
	}).With(listingSerde)

	bySeller := operators.KeyBy(sellers, "sellers", serde.Int64, func(s *seller) int64 { return s.ID })
	listed := operators.KeyBy(listings, "listings", serde.Int64, func(l *listing) int64 { return l.Seller })
	joined := operators.JoinStreams(bySeller, listed, "local auctions", operators.Forever,
		func(_ *int64, s *seller, l *listing) event.Q3Row {
			return event.Q3Row{Name: s.Name, City: s.City, State: s.State, ID: l.ID}
		})
	rows := operators.Map(joined, func(kv *operators.KV[int64, event.Q3Row]) event.Q3Row { return kv.Value }).With(serde.New("q3 row", func(dst []byte, r *event.Q3Row) []byte {
		p := local{r.Name, r.City, r.State}
		return serde.AppendInt64(localSerde.Append(dst, &p), r.ID)
	}, func(d *serde.Reader, r *event.Q3Row) {
		r.Name, r.City, r.State, r.ID = d.String(), d.String(), d.String(), d.Int64()
	}))
	Emit(rows, out, func(dst []byte, row *event.Q3Row) []byte { return row.AppendJSON(dst) })
}
