package query

import (
	"strings"
	"time"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// sign is an activity of a person: the registration, with the name, or an auction that the person
// opened.
type sign struct {
	ID         int64
	Registered bool
	Name       string
}

// newcomer is the state of a person in a window.
type newcomer struct {
	Registered, Opened bool
	Name               string
}

var newcomerSerde = serde.New("newcomer", func(dst []byte, n *newcomer) []byte {
	dst = serde.AppendBool(dst, n.Registered)
	dst = serde.AppendBool(dst, n.Opened)
	return serde.AppendString(dst, n.Name)
}, func(d *serde.Reader, n *newcomer) { n.Registered, n.Opened, n.Name = d.Bool(), d.Bool(), d.String() })

func (n *newcomer) add(o *newcomer) {
	if o.Registered && !n.Registered {
		n.Registered, n.Name = true, strings.Clone(o.Name)
	}
	n.Opened = n.Opened || o.Opened
}

// q8: the persons that opened an auction in the window of ten seconds in which
// they registered, once each.
func q8(events operators.Stream[event.Raw], p Params, out Output) {
	signs := operators.FilterMap(events, func(r *event.Raw) (sign, bool) {
		switch r.Type() {
		case event.TypePerson:
			p := must(event.DecodePerson(*r))
			return sign{p.ID, true, p.Name}, true
		case event.TypeAuction:
			return sign{ID: must(event.DecodeAuction(*r)).Seller}, true
		}
		return sign{}, false
	})
	seen := operators.PreAggregate(signs, "persons", serde.Int64, func(s *sign) int64 { return s.ID },
		operators.Tumbling(10*time.Second), operators.Aggregator[sign, newcomer]{
			Acc:   newcomerSerde,
			Add:   func(n *newcomer, s *sign, _ int64) { n.add(&newcomer{s.Registered, !s.Registered, s.Name}) },
			Merge: func(n, o *newcomer) { n.add(o) },
		})
	windows := operators.CombineWindows(seen, operators.Emit(p.Emission))
	rows := operators.FilterMap(windows, func(w *operators.KV[int64, operators.Windowed[newcomer]]) (event.Q8Row, bool) {
		n := &w.Value.Value
		return event.Q8Row{ID: w.Key, Name: n.Name, Start: w.Value.Start, End: w.Value.End}, n.Registered && n.Opened
	}).With(serde.New("q8 row", func(dst []byte, r *event.Q8Row) []byte {
		dst = serde.AppendInt64(dst, r.ID)
		dst = serde.AppendInt64(dst, r.Start)
		dst = serde.AppendInt64(dst, r.End)
		return serde.AppendString(dst, r.Name)
	}, func(d *serde.Reader, r *event.Q8Row) {
		r.ID, r.Start, r.End, r.Name = d.Int64(), d.Int64(), d.Int64(), d.String()
	}))
	Emit(rows, out, func(dst []byte, row *event.Q8Row) []byte { return row.AppendJSON(dst) })
}
