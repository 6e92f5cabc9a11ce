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
	j := in.n.job
	what := fmt.Sprintf("sessions %q", name)
	agg.check(j, what, true)
	o := windowed(j, what, opts)
	if gap <= 0 || gap%time.Millisecond != 0 {
		j.errorf("%s: gap %v is not a positive whole number of milliseconds", what, gap)
	}
	if agg.Keeps && in.vals == nil {
		j.errorf("%s: items are kept and have no serde; give one with With", what)
	}
	ms := gap.Milliseconds()
	out := Process(in, name, func(c *Context[K, Windowed[A]]) Handler[T] {
		s := &sessions[K, A]{c: c, o: o, gap: ms, merge: agg.Merge}
		var sd serde.Serde[[]session[A]]
		if agg.Acc != nil {
			sd = serde.Slice(sessionSerde(agg.Acc))
		}
		s.all = NewValue(c, "sessions", sd)
		clone := cloner(agg.Keeps, in.vals)
		return Handler[T]{
			Item: func(v *T) {
				x := s.find(c.time)
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
				if o.emission == Eager {
					s.emit(x, c.time)
				} else if x.last+ms <= c.w {
					s.emit(x, c.w) // it has been emitted before
				}
			},
			Timers: Timers{OnEvent: s.due},
		}
	})
	if o.emission == Eager {
		out.n.varies = what + " are Eager"
	}
	if agg.Acc != nil {
		out = out.With(WindowedSerde(agg.Acc))
	}
	return out
}

// session is from its first item to its last.
type session[A any] struct {
	first, last int64
	acc         A
}

func sessionSerde[A any](acc serde.Serde[A]) serde.Serde[session[A]] {
	return serde.New("session of "+serde.NameOf(acc),
		func(dst []byte, s *session[A]) []byte {
			dst = serde.AppendInt64(dst, s.first)
			dst = serde.AppendInt64(dst, s.last-s.first)
			return acc.Append(dst, &s.acc)
		},
		func(r *serde.Reader, s *session[A]) {
			s.first = r.Int64()
			s.last = s.first + r.Int64()
			serde.Take(r, acc, &s.acc)
		})
}

// sessions are those of the current key, sorted, more than a gap apart.
type sessions[K comparable, A any] struct {
	c     *Context[K, Windowed[A]]
	o     windowOptions
	gap   int64
	merge func(acc, other *A)
	all   Value[[]session[A]]
	moved []int64 // scratch of find: the last times of sessions that have been extended
}

// find returns the session that an item of time t belongs to, made or extended
// to hold it, or nil if that session is past its lateness.
func (s *sessions[K, A]) find(t int64) *session[A] {
	var all []session[A]
	if p := s.all.Get(); p != nil {
		all = *p
	}
	// all[from:to] are less than a gap from t.
	from := 0
	for from < len(all) && t-all[from].last >= s.gap {
		from++
	}
	to, first, last := from, t, t
	for to < len(all) && all[to].first-t < s.gap {
		first, last = min(first, all[to].first), max(last, all[to].last)
		to++
	}
	if last+s.gap+s.o.lateness <= s.c.w {
		return nil
	}
	p := s.all.Upsert()
	if from == to {
		*p = slices.Insert(*p, from, session[A]{first: t, last: t})
		s.arm(last)
		return &(*p)[from]
	}
	x := &(*p)[from]
	s.moved = s.moved[:0]
	for i := from; i < to; i++ {
		if (*p)[i].last != last {
			s.moved = append(s.moved, (*p)[i].last)
		}
		if i > from {
			s.merge(&x.acc, &(*p)[i].acc)
		}
	}
	x.first, x.last = first, last
	*p = slices.Delete(*p, from+1, to)
	for _, t := range s.moved {
		s.disarm(*p, t)
	}
	s.arm(last)
	return &(*p)[from]
}

// arm sets the timers of a session whose last item is at last.
func (s *sessions[K, A]) arm(last int64) {
	if end := last + s.gap; end > s.c.w {
		s.c.SetEventTimer(end)
	}
	s.c.SetEventTimer(last + s.gap + s.o.lateness)
}

// disarm takes back the timers of a session whose last item was at last, except those
// that another session of the key has too: the end of one can be the end of another's
// lateness, and a timer of a key and time is one.
func (s *sessions[K, A]) disarm(all []session[A], last int64) {
	end := last + s.gap
	for _, t := range [...]int64{end, end + s.o.lateness} {
		if !slices.ContainsFunc(all, func(x session[A]) bool {
			return x.last+s.gap == t || x.last+s.gap+s.o.lateness == t
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
		if x := &(*p)[i]; x.last+s.gap == t && s.o.emission == Final {
			s.emit(x, t-1)
		}
	}
	*p = slices.DeleteFunc(*p, func(x session[A]) bool { return x.last+s.gap+s.o.lateness <= t })
	if len(*p) == 0 {
		s.all.Delete()
	}
}

func (s *sessions[K, A]) emit(x *session[A], t int64) {
	s.c.Emit(Windowed[A]{Start: x.first, End: x.last + s.gap, Value: x.acc}, t)
}
