package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/serde"
)

// AggregateSessionsBy is AggregateSessions with a gap that each item has of its own: an item
// of time t keeps its session open until t + gap(item). Items whose intervals [t, t + gap)
// meet are in one session, and its End is the last end of those intervals.
//
// A gap is a function of the item, of at least a millisecond; what is less than one is left
// out. An item with less fails.
func AggregateSessionsBy[K comparable, T, A any](in KeyedStream[K, T], name string, gap func(v *T) time.Duration, agg Aggregator[T, A], opts ...WindowOption) KeyedStream[K, Windowed[A]] {
	ms := func(v *T) int64 {
		d := gap(v)
		if d < time.Millisecond {
			Fail(fmt.Errorf("sessions %q: the item's gap %v is less than a millisecond", name, d))
		}
		return d.Milliseconds()
	}
	return aggregateSessions(in, name, ms, agg, opts, func(acc serde.Serde[A]) serde.Serde[session[A]] {
		return serde.New("session with its end of "+serde.NameOf(acc),
			func(dst []byte, s *session[A]) []byte {
				dst = serde.AppendInt64(dst, s.first)
				dst = serde.AppendInt64(dst, s.end-s.first)
				return acc.Append(dst, &s.acc)
			},
			func(r *serde.Reader, s *session[A]) {
				s.first = r.Int64()
				s.end = s.first + r.Int64()
				serde.Take(r, acc, &s.acc)
			})
	})
}
