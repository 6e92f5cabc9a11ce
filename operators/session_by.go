package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/internal/fold"
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
	return aggregateSessions(in, name, ms, agg, opts, fold.SessionWithEndSerde[A])
}
