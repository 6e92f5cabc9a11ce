package query

import (
	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// mean is a sum in cents and the number of its terms.
type mean struct{ Sum, Count int64 }

var meanSerde = serde.New("mean", func(dst []byte, m *mean) []byte {
	return serde.AppendInt64(serde.AppendInt64(dst, m.Sum), m.Count)
}, func(d *serde.Reader, m *mean) { m.Sum, m.Count = d.Int64(), d.Int64() })

// q4: the mean of the winning prices of each category's closed auctions.
func q4(events operators.Stream[event.Raw], p Params, out Output) {
	byCategory := operators.KeyBy(winners(events, p), "by-category", serde.Int64, func(s *sale) int64 { return s.Category })
	means := operators.Aggregate(byCategory, operators.Aggregator[sale, mean]{
		Acc: meanSerde,
		Add: func(m *mean, s *sale, _ int64) {
			if s.First {
				m.Count++
				m.Sum += s.Price
				return
			}
			m.Sum += s.Price - s.Before
		},
	})
	rows := operators.Map(means, func(c *operators.Change[int64, mean]) event.Q4Row {
		return event.Q4Row{Category: c.Key, Sum: c.Value.Sum, Count: c.Value.Count}
	}).With(serde.New("q4 row", func(dst []byte, r *event.Q4Row) []byte {
		return meanSerde.Append(serde.AppendInt64(dst, r.Category), &mean{r.Sum, r.Count})
	}, func(d *serde.Reader, r *event.Q4Row) { r.Category, r.Sum, r.Count = d.Int64(), d.Int64(), d.Int64() }))
	Emit(rows, out, func(dst []byte, row *event.Q4Row) []byte { return row.AppendJSON(dst) })
}
