package operators

import (
	"fmt"
	"slices"
	"time"

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
	return aggregateSessions(in, name, func(*T) int64 { return ms }, agg, opts, func(acc serde.Serde[A]) serde.Serde[session[A]] {
		return sessionSerde(acc, ms)
	})
}

// aggregateSessions is AggregateSessions with the gap behind each item, in ms.
func aggregateSessions[K comparable, T, A any](in KeyedStream[K, T], name string, gap func(v *T) int64, agg Aggregator[T, A], opts []WindowOption,
	sessionsAs func(acc serde.Serde[A]) serde.Serde[session[A]],
) KeyedStream[K, Windowed[A]] {
	j := in.n.job
	what := fmt.Sprintf("sessions %q", name)
	agg.check(j, what, true)
	o := windowed(j, what, opts)
	if agg.Keeps && in.vals == nil {
		j.errorf("%s: items are kept and have no serde; give one with With", what)
	}
	gone := NewSide[span]("sessions that are gone")
	out := Process(in, name, func(c *Context[K, Windowed[A]]) Handler[T] {
		s := &sessions[K, A]{c: c, o: o, merge: agg.Merge}
		if out, ok := SideOutput(c, gone).(*sideOutput[K, Windowed[A], span]); ok && out.out != nil {
			s.gone = out
		}
		var sd serde.Serde[[]session[A]]
		if agg.Acc != nil {
			sd = serde.Slice(sessionsAs(agg.Acc))
		}
		s.all = NewValue(c, "sessions", sd)
		clone, plain := cloner(agg.Keeps, in.vals), serde.Plain(agg.Acc)
		return Handler[T]{
			Item: func(v *T) {
				x := s.find(c.time, gap(v))
				if x == nil {
					c.Late()
					return
				}
				if clone != nil {
					own, err := clone(v)
					if err != nil {
						c.fail(err)
						return
					}
					v = own
				}
				agg.Add(&x.acc, v, c.time)
				switch {
				case o.emission == Eager:
					s.emit(x, c.time)
				case x.end <= c.w:
					s.emit(x, c.w) // it has been emitted before
				default:
					return
				}
				if !plain && c.failed == nil {
					c.failed = c.out.flush() // before the accumulator is changed in place
				}
			},
			Timers: Timers{OnEvent: s.due},
		}
	})
	out.n.op.results = &windowResults{lateness: o.lateness, gone: gone}
	if o.emission == Eager {
		out.n.varies = what + " are Eager"
	} else if o.lateness == 0 {
		out.n.op.results = &windowResults{once: true}
	}
	if agg.Acc != nil {
		out = out.With(WindowedSerde(agg.Acc))
	}
	return out
}

// session is from its first item to the end of the gap behind its last.
type session[A any] struct {
	first, end int64
	acc        A
}

// sessionSerde writes the time of a session's last item, which is gap before its end.
func sessionSerde[A any](acc serde.Serde[A], gap int64) serde.Serde[session[A]] {
	return serde.New("session of "+serde.NameOf(acc),
		func(dst []byte, s *session[A]) []byte {
			dst = serde.AppendInt64(dst, s.first)
			dst = serde.AppendInt64(dst, s.end-gap-s.first)
			return acc.Append(dst, &s.acc)
		},
		func(r *serde.Reader, s *session[A]) {
			s.first = r.Int64()
			s.end = s.first + r.Int64() + gap
			serde.Take(r, acc, &s.acc)
		})
}

// sessions are those of the current key, sorted; none reaches into another.
type sessions[K comparable, A any] struct {
	c     *Context[K, Windowed[A]]
	o     windowOptions
	merge func(acc, other *A)
	all   Value[[]session[A]]
	moved []int64 // scratch of find: the ends of sessions that have been extended
	// gone takes the bounds of sessions that have been emitted and have others now; nil:
	// nobody takes them.
	gone *sideOutput[K, Windowed[A], span]
}

// find returns the session that an item of time t, with a gap behind it, belongs to, made or
// extended to hold it, or nil if that session is past its lateness.
func (s *sessions[K, A]) find(t, gap int64) *session[A] {
	var all []session[A]
	if p := s.all.Get(); p != nil {
		all = *p
	}
	// all[from:to] have a part in common with [t, t+gap).
	from := 0
	for from < len(all) && all[from].end <= t {
		from++
	}
	to, first, end := from, t, t+gap
	for to < len(all) && all[to].first < t+gap {
		first, end = min(first, all[to].first), max(end, all[to].end)
		to++
	}
	if end+s.o.lateness <= s.c.w {
		return nil
	}
	if s.gone != nil {
		for i := from; i < to; i++ {
			s.replaced(&all[i], first, end)
		}
	}
	p := s.all.Upsert()
	if from == to {
		*p = slices.Insert(*p, from, session[A]{first: t, end: end})
		s.arm(end)
		return &(*p)[from]
	}
	x := &(*p)[from]
	s.moved = s.moved[:0]
	for i := from; i < to; i++ {
		if (*p)[i].end != end {
			s.moved = append(s.moved, (*p)[i].end)
		}
		if i > from {
			s.merge(&x.acc, &(*p)[i].acc)
		}
	}
	x.first, x.end = first, end
	*p = slices.Delete(*p, from+1, to)
	for _, t := range s.moved {
		s.disarm(*p, t)
	}
	s.arm(end)
	return &(*p)[from]
}

// replaced is called with a session that is to be part of one with these bounds. If it has
// been emitted with others, it says so, behind the results that have been emitted by now.
func (s *sessions[K, A]) replaced(x *session[A], first, end int64) {
	c := s.c
	if x.first == first && x.end == end || s.o.emission == Final && x.end > c.w || c.failed != nil {
		return
	}
	if c.failed = c.out.flush(); c.failed != nil {
		return
	}
	if s.gone.Emit(span{x.first, x.end}, c.time); c.failed == nil {
		c.failed = s.gone.out.flush()
	}
}

// arm sets the timers of a session.
func (s *sessions[K, A]) arm(end int64) {
	if end > s.c.w {
		s.c.SetEventTimer(end)
	}
	s.c.SetEventTimer(end + s.o.lateness)
}

// disarm takes back the timers of a session that ended at end, except those
// that another session of the key has too: the end of one can be the end of another's
// lateness, and a timer of a key and time is one.
func (s *sessions[K, A]) disarm(all []session[A], end int64) {
	for _, t := range [...]int64{end, end + s.o.lateness} {
		if !slices.ContainsFunc(all, func(x session[A]) bool {
			return x.end == t || x.end+s.o.lateness == t
		}) {
			s.c.DeleteEventTimer(t)
		}
	}
}

// due emits the session that ends at t and forgets the one whose lateness does.
// A timer of one session can be that of another too: times decide.
func (s *sessions[K, A]) due(t int64) {
	p := s.all.Update()
	if p == nil {
		return
	}
	for i := range *p {
		if x := &(*p)[i]; x.end == t && s.o.emission == Final {
			s.emit(x, t-1)
		}
	}
	*p = slices.DeleteFunc(*p, func(x session[A]) bool { return x.end+s.o.lateness <= t })
	if len(*p) == 0 {
		s.all.Delete()
	}
}

func (s *sessions[K, A]) emit(x *session[A], t int64) {
	s.c.Emit(Windowed[A]{Start: x.first, End: x.end, Value: x.acc}, t)
}
