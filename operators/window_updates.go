package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/item"
)

// WindowUpdates reads the results of windows as the stream of what happens to them, each
// with its Kind. A window whose result can still change (Emit(Eager), Lateness, a Trigger)
// has several results, each of which replaces the one before: the first is an Insert, each
// further one an UpdateBefore with the result that it replaces and, directly behind that, an
// UpdateAfter. A session that an item extends, or makes one with others, gives a Delete of
// each result that it has had with its former bounds; the result with the new bounds is an
// Insert. So a consumer that adds what Kind.Adds and subtracts the rest, as AggregateUpdates
// does, counts each window once, with its newest result.
//
// in is the result of AggregateWindows, CombineWindows, CountWindows, AggregateSessions,
// AggregateSessionsBy or AggregateTriggered, with nothing but With in between. The newest
// result of each window is kept until the window's lateness has passed. Results that are
// Final and have no Lateness never change: each is an Insert, and nothing is kept.
//
// An update has the time of the result that it comes from, or of the window's update before
// it if that is later: the updates of a window are in the order of their times.
func WindowUpdates[K comparable, A any](in KeyedStream[K, Windowed[A]], name string) KeyedStream[K, Update[Windowed[A]]] {
	j, of := in.n.job, in.n.op
	what := fmt.Sprintf("updates of windows %q", name)
	r := new(windowResults)
	switch {
	case of == nil || of.results == nil:
		j.errorf("%s: the stream does not come from an operator with windows", what)
	case of.results.parts:
		j.errorf("%s: the results of %q are Discarding, none replaces another", what, of.title())
	default:
		r = of.results
	}
	if in.vals == nil {
		j.errorf("%s: the results (%s) have no serde; give one with With", what, item.TypeName[Windowed[A]]())
	}
	var out KeyedStream[K, Update[Windowed[A]]]
	if r.gone != nil {
		out = process2(in, SideStream(in, r.gone), name, sides{}, func(x *Context[K, Update[Windowed[A]]]) Handler2[Windowed[A], fold.Span] {
			u := fold.NewUpdates(&x.call, in.vals, r.lateness)
			return Handler2[Windowed[A], fold.Span]{Left: u.Result, Right: u.Gone, Timers: Timers{OnEvent: u.Expire}}
		})
	} else {
		j.claim("process function", name)
		out = processOne(in, j.identify(in.n.stage, "process", name), options{timeless: r.once}, func(x *Context[K, Update[Windowed[A]]]) Handler[Windowed[A]] {
			if r.once {
				return Handler[Windowed[A]]{Item: func(v *Windowed[A]) { x.Emit(Update[Windowed[A]]{Kind: Insert, Value: *v}, x.Time()) }}
			}
			u := fold.NewUpdates(&x.call, in.vals, r.lateness)
			return Handler[Windowed[A]]{Item: u.Result, Timers: Timers{OnEvent: u.Expire}}
		})
	}
	if in.vals != nil {
		out = out.With(item.UpdateSerde(in.vals))
	}
	return out
}

// windowResults says of an operator with windows how its results replace each other.
type windowResults struct {
	lateness int64 // there are no results of a window behind its end + lateness
	once     bool  // a window has one result
	parts    bool  // a result has only the items since the one before
	// gone, if set, has the bounds that sessions had, and have no longer. It comes in order
	// with the results. No two sessions of a key have the same end.
	gone *Side[fold.Span]
}
