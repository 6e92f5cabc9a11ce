package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/serde"
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
		j.errorf("%s: the results (%s) have no serde; give one with With", what, typeName[Windowed[A]]())
	}
	var out KeyedStream[K, Update[Windowed[A]]]
	if r.gone != nil {
		out = process2(in, SideStream(in, r.gone), name, sides{}, func(c *Context[K, Update[Windowed[A]]]) Handler2[Windowed[A], span] {
			u := newWindowUpdates(c, in.vals, r.lateness)
			return Handler2[Windowed[A], span]{Left: u.result, Right: u.gone, Timers: Timers{OnEvent: u.expire}}
		})
	} else {
		j.claim("process function", name)
		out = process(in, j.identify(in.n.stage, "process", name), options{}, func(c *Context[K, Update[Windowed[A]]]) Handler[Windowed[A]] {
			if r.once {
				return Handler[Windowed[A]]{Item: func(v *Windowed[A]) { c.Emit(Update[Windowed[A]]{Insert, *v}, c.time) }}
			}
			u := newWindowUpdates(c, in.vals, r.lateness)
			return Handler[Windowed[A]]{Item: u.result, Timers: Timers{OnEvent: u.expire}}
		})
	}
	if in.vals != nil {
		out = out.With(UpdateSerde(in.vals))
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
	gone *Side[span]
}

// span is the bounds of a session.
type span struct{ start, end int64 }

// windowUpdates keeps the newest result of each window of the current key, by the window's
// end.
type windowUpdates[K comparable, A any] struct {
	c        *Context[K, Update[Windowed[A]]]
	newest   MapState[int64, timedResult[A]]
	lateness int64
	vals     serde.Serde[Windowed[A]]
	acc      serde.Serde[A] // nil: vals is not a WindowedSerde
}

// timedResult is a result, and the time of the window's newest update.
type timedResult[A any] struct {
	time   int64
	result Windowed[A]
}

func newWindowUpdates[K comparable, A any](c *Context[K, Update[Windowed[A]]], vals serde.Serde[Windowed[A]], lateness int64) *windowUpdates[K, A] {
	u := &windowUpdates[K, A]{c: c, lateness: lateness, vals: vals}
	if w, ok := vals.(windowedSerde[A]); ok {
		u.acc = w.of
	}
	var sd serde.Serde[timedResult[A]]
	if vals != nil {
		sd = serde.New("newest "+serde.NameOf(vals),
			func(dst []byte, v *timedResult[A]) []byte {
				return vals.Append(serde.AppendInt64(dst, v.time), &v.result)
			},
			func(r *serde.Reader, v *timedResult[A]) {
				v.time = r.Int64()
				serde.Take(r, vals, &v.result)
			})
	}
	u.newest = NewMap(c, "newest", serde.Int64, sd)
	return u
}

// result is called with a window's new result.
func (u *windowUpdates[K, A]) result(v *Windowed[A]) {
	c := u.c
	t, kind := max(c.time, c.floor), Insert
	x := u.newest.Update(v.End)
	switch {
	case x == nil:
		x = u.newest.Upsert(v.End)
		c.SetEventTimer(u.until(v.End))
	case x.result.Start == v.Start:
		t, kind = max(t, x.time), UpdateAfter
		c.Emit(Update[Windowed[A]]{UpdateBefore, x.result}, t)
	}
	x.time = t
	if err := u.keep(&x.result, v); err != nil {
		c.fail(err)
	}
	c.Emit(Update[Windowed[A]]{kind, *v}, t)
}

// keep sets *dst, of the state, to a clone of *v. The memory of what it was stays as it is:
// it may have been emitted.
func (u *windowUpdates[K, A]) keep(dst, v *Windowed[A]) error {
	if u.acc == nil {
		return serde.CloneInto(u.vals, dst, v)
	}
	dst.Start, dst.End = v.Start, v.End
	return serde.CloneInto(u.acc, &dst.Value, &v.Value)
}

// gone is called with the bounds of a session that has others from now on.
func (u *windowUpdates[K, A]) gone(v *span) {
	if x := u.newest.Get(v.end); x != nil && x.result.Start == v.start {
		u.c.Emit(Update[Windowed[A]]{Delete, x.result}, max(u.c.time, x.time))
		u.newest.Delete(v.end)
	}
}

// until returns when the last result of a window has come.
func (u *windowUpdates[K, A]) until(end int64) int64 {
	if end > MaxTime-u.lateness {
		return MaxTime
	}
	return end + u.lateness
}

// expire forgets the window that has its last result at t.
func (u *windowUpdates[K, A]) expire(t int64) {
	if t < MaxTime {
		u.newest.Delete(t - u.lateness)
		return
	}
	u.newest.Clear()
}
