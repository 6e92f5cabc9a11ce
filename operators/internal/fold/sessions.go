package fold

import (
	"slices"

	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// Session is from its first item to the end of the gap behind its last.
type Session[A any] struct {
	first, end int64
	acc        A
}

// SessionSerde writes the time of a session's last item, which is gap before its end.
func SessionSerde[A any](acc serde.Serde[A], gap int64) serde.Serde[Session[A]] {
	return serde.New("session of "+serde.NameOf(acc),
		func(dst []byte, s *Session[A]) []byte {
			dst = serde.AppendInt64(dst, s.first)
			dst = serde.AppendInt64(dst, s.end-gap-s.first)
			return acc.Append(dst, &s.acc)
		},
		func(r *serde.Reader, s *Session[A]) {
			s.first = r.Int64()
			s.end = s.first + r.Int64() + gap
			serde.Take(r, acc, &s.acc)
		})
}

// SessionWithEndSerde writes a session's end.
func SessionWithEndSerde[A any](acc serde.Serde[A]) serde.Serde[Session[A]] {
	return serde.New("session with its end of "+serde.NameOf(acc),
		func(dst []byte, s *Session[A]) []byte {
			dst = serde.AppendInt64(dst, s.first)
			dst = serde.AppendInt64(dst, s.end-s.first)
			return acc.Append(dst, &s.acc)
		},
		func(r *serde.Reader, s *Session[A]) {
			s.first = r.Int64()
			s.end = s.first + r.Int64()
			serde.Take(r, acc, &s.acc)
		})
}

// Sessions are those of the current key, sorted; none reaches into another.
type Sessions[K comparable, T, A any] struct {
	// Gap returns the gap behind an item, in ms. An item keeps its session open until its time and
	// the gap.
	Gap      func(v *T) int64
	Eager    bool
	Lateness int64
	Add      func(acc *A, v *T, time int64)
	Merge    func(acc, other *A)
	Clone    func(*T) (*T, error)
	Plain    bool // accumulators hold no memory
	// Gone takes the bounds of sessions that have been emitted and have others now; it may be nil.
	Gone *process.Side[K, item.Windowed[A], Span]

	c     *process.Call[K, item.Windowed[A]]
	all   *process.Value[K, item.Windowed[A], []Session[A]]
	moved []int64 // scratch of find: the ends of sessions that have been extended
}

// Span is the bounds of a session.
type Span struct{ Start, End int64 }

// Start makes the state, whose sessions have this serde.
func (s *Sessions[K, T, A]) Start(c *process.Call[K, item.Windowed[A]], sd serde.Serde[[]Session[A]]) {
	s.c, s.all = c, process.NewValue(c, "sessions", sd)
}

// Item adds an item to its session.
func (s *Sessions[K, T, A]) Item(v *T) {
	c := s.c
	x := s.find(c.Time, s.Gap(v))
	if x == nil {
		c.Late()
		return
	}
	if s.Clone != nil {
		own, err := s.Clone(v)
		if err != nil {
			c.Fail(err)
			return
		}
		v = own
	}
	s.Add(&x.acc, v, c.Time)
	switch {
	case s.Eager:
		s.emit(x, c.Time)
	case x.end <= c.W:
		s.emit(x, c.W) // it has been emitted before
	default:
		return
	}
	if !s.Plain && c.Failed == nil {
		c.Failed = c.Out.Flush() // before the accumulator is changed in place
	}
}

// find returns the session that an item of time t, with a gap behind it, belongs to, made or
// extended to hold it, or nil if that session is past its lateness.
func (s *Sessions[K, T, A]) find(t, gap int64) *Session[A] {
	var all []Session[A]
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
	if end+s.Lateness <= s.c.W {
		return nil
	}
	if s.Gone != nil {
		for i := from; i < to; i++ {
			s.replaced(&all[i], first, end)
		}
	}
	p := s.all.Upsert()
	if from == to {
		*p = slices.Insert(*p, from, Session[A]{first: t, end: end})
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
			s.Merge(&x.acc, &(*p)[i].acc)
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
func (s *Sessions[K, T, A]) replaced(x *Session[A], first, end int64) {
	c := s.c
	if x.first == first && x.end == end || !s.Eager && x.end > c.W || c.Failed != nil {
		return
	}
	if c.Failed = c.Out.Flush(); c.Failed != nil {
		return
	}
	if s.Gone.Emit(Span{x.first, x.end}, c.Time); c.Failed == nil {
		c.Failed = s.Gone.Flush()
	}
}

// arm sets the timers of a session.
func (s *Sessions[K, T, A]) arm(end int64) {
	if end > s.c.W {
		s.c.SetEventTimer(end)
	}
	s.c.SetEventTimer(end + s.Lateness)
}

// disarm takes back the timers of a session that ended at end, except those
// that another session of the key has too: the end of one can be the end of another's
// lateness, and a timer of a key and time is one.
func (s *Sessions[K, T, A]) disarm(all []Session[A], end int64) {
	for _, t := range [...]int64{end, end + s.Lateness} {
		if !slices.ContainsFunc(all, func(x Session[A]) bool {
			return x.end == t || x.end+s.Lateness == t
		}) {
			s.c.DeleteEventTimer(t)
		}
	}
}

// Due emits the session that ends at t and forgets the one whose lateness does.
// A timer of one session can be that of another too: times decide.
func (s *Sessions[K, T, A]) Due(t int64) {
	p := s.all.Update()
	if p == nil {
		return
	}
	for i := range *p {
		if x := &(*p)[i]; x.end == t && !s.Eager {
			s.emit(x, t-1)
		}
	}
	*p = slices.DeleteFunc(*p, func(x Session[A]) bool { return x.end+s.Lateness <= t })
	if len(*p) == 0 {
		s.all.Delete()
	}
}

func (s *Sessions[K, T, A]) emit(x *Session[A], t int64) {
	s.c.Emit(item.Windowed[A]{Start: x.first, End: x.end, Value: x.acc}, t)
}
