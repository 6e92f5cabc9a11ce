package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// AggregateSessions folds the items of each key and session. A session is a run
// of items each less than gap after the one before; it closes when the watermark
// reaches its last item's time + gap, its End. An item between two sessions can
// make them one. Emission, lateness and late items are as in AggregateWindows,
// but Eager emits at each item.
func AggregateSessions[K comparable, T, A any](in KeyedStream[K, T], name string, gap time.Duration, agg Aggregator[T, A], opts ...WindowOption) KeyedStream[K, Windowed[A]] {
	if gap <= 0 || gap%time.Millisecond != 0 {
		in.n.job.errorf("sessions %q: gap %v is not a positive whole number of milliseconds", name, gap)
	}
	ms := gap.Milliseconds()
	return aggregateSessions(in, name, func(*T) int64 { return ms }, agg, opts, func(acc serde.Serde[A]) serde.Serde[fold.Session[A]] {
		return fold.SessionSerde(acc, ms)
	})
}

// aggregateSessions is AggregateSessions with the gap behind each item, in ms.
func aggregateSessions[K comparable, T, A any](in KeyedStream[K, T], name string, gap func(v *T) int64, agg Aggregator[T, A], opts []WindowOption,
	sessionsAs func(acc serde.Serde[A]) serde.Serde[fold.Session[A]],
) KeyedStream[K, Windowed[A]] {
	j := in.n.job
	what := fmt.Sprintf("sessions %q", name)
	agg.check(j, what, in.vals, true)
	o := windowed(j, what, opts)
	gone := NewSide[fold.Span]("sessions that are gone")
	out := Process(in, name, func(x *Context[K, Windowed[A]]) Handler[T] {
		f := fold.Sessions[K, T, A]{
			Gap: gap, Eager: o.emission == Eager, Lateness: o.lateness, Add: agg.Add, Merge: agg.Merge,
			Clone: fold.Cloner(agg.Keeps, in.vals), Plain: serde.Plain(agg.Acc), Gone: sideOutput(x, gone),
		}
		var sd serde.Serde[[]fold.Session[A]]
		if agg.Acc != nil {
			sd = serde.Slice(sessionsAs(agg.Acc))
		}
		f.Start(&x.call, sd)
		return Handler[T]{Item: f.Item, Timers: Timers{OnEvent: f.Due}}
	})
	out.n.op.results = &windowResults{lateness: o.lateness, gone: gone}
	if o.emission == Eager {
		out.n.varies = what + " are Eager"
	} else if o.lateness == 0 {
		out.n.op.results = &windowResults{once: true}
	}
	if agg.Acc != nil {
		out = out.With(item.WindowedSerde(agg.Acc))
	}
	return out
}
