package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// LeftJoinStreams is JoinStreams that also calls f for a left item without a partner, with nil for
// the right one: once, when the watermark says that none can come any more. That result has the
// item's time plus `within`, so it does not depend on when the watermark came. within is finite.
//
// With Grace a partner may come that much behind the watermark, and items without one wait that
// much longer.
//
// An item behind the watermark is joined with the partners that are still kept. A partner that has
// already been emitted alone is gone. If the watermark is so far ahead of an item that it would be
// dropped at once, the item is counted as late, unless it finds a partner, and is not emitted
// alone.
func LeftJoinStreams[K comparable, L, R, Out any](left KeyedStream[K, L], right KeyedStream[K, R], name string, within time.Duration, f func(key *K, l *L, r *R) Out, opts ...Option) KeyedStream[K, Out] {
	return outerJoin(left, right, name, within, sides{left: true}, f, opts)
}

// RightJoinStreams is LeftJoinStreams for right items without a left one.
func RightJoinStreams[K comparable, L, R, Out any](left KeyedStream[K, L], right KeyedStream[K, R], name string, within time.Duration, f func(key *K, l *L, r *R) Out, opts ...Option) KeyedStream[K, Out] {
	return outerJoin(left, right, name, within, sides{right: true}, f, opts)
}

// OuterJoinStreams is LeftJoinStreams for the items of both sides: f is called with nil for either.
func OuterJoinStreams[K comparable, L, R, Out any](left KeyedStream[K, L], right KeyedStream[K, R], name string, within time.Duration, f func(key *K, l *L, r *R) Out, opts ...Option) KeyedStream[K, Out] {
	return outerJoin(left, right, name, within, sides{left: true, right: true}, f, opts)
}

func outerJoin[K comparable, L, R, Out any](left KeyedStream[K, L], right KeyedStream[K, R], name string, within time.Duration, outer sides, f func(key *K, l *L, r *R) Out, opts []Option) KeyedStream[K, Out] {
	j := left.n.job
	needSerdes(j, name, left.vals, right.vals)
	if within < 0 || within%time.Millisecond != 0 {
		j.errorf("join %q: within %v is not a whole number of milliseconds ≥ 0; that an item has no partner is known only if there is a bound", name, within)
	}
	span := within.Milliseconds()
	keep := span + j.options(fmt.Sprintf("join %q", name), opts, "Grace").grace
	out := Process2(left, right, name, func(c *Context[K, Out]) Handler2[L, R] {
		ls, rs := newOuterSide(c, "left", left.vals, outer.left), newOuterSide(c, "right", right.vals, outer.right)
		leftAlone := func(l *L, t int64) { c.Emit(f(&c.key, l, nil), t) }
		rightAlone := func(r *R, t int64) { c.Emit(f(&c.key, nil, r), t) }
		return Handler2[L, R]{
			Left: func(l *L) {
				partners := near(rs.list.Get(c.group, &c.key), c.time, span)
				for i := range partners {
					r := &partners[i]
					c.Emit(f(&c.key, l, &r.Value), max(c.time, r.Time))
					rs.met(c.group, &c.key, r.Number())
				}
				keepAlone(c, ls, l, keep, len(partners) > 0)
			},
			Right: func(r *R) {
				partners := near(ls.list.Get(c.group, &c.key), c.time, span)
				for i := range partners {
					l := &partners[i]
					c.Emit(f(&c.key, &l.Value, r), max(c.time, l.Time))
					ls.met(c.group, &c.key, l.Number())
				}
				keepAlone(c, rs, r, keep, len(partners) > 0)
			},
			Timers: Timers{OnEvent: func(t int64) {
				// At this watermark the items of time t − 1 − keep and before cannot get a partner
				// any more. The time of their results is not below the previous watermark, which
				// has not reached t.
				ls.expire(c.group, &c.key, t-keep, keep, leftAlone)
				rs.expire(c.group, &c.key, t-keep, keep, rightAlone)
			}},
		}
	})
	out.n.op.shape = map[sides]string{{left: true}: "left outer", {right: true}: "right outer", {true, true}: "full outer"}[outer]
	return out
}

// outerSide holds the items of one side that may still find a partner.
type outerSide[K comparable, V any] struct {
	list *state.List[K, V]
	// alone has the number of each item in list that has found none; nil: nothing needs it.
	alone *state.Map[state.PaneKey[K], struct{}]
	key   state.PaneKey[K] // here, because a local one would escape: an allocation an item
}

func newOuterSide[V any, K comparable, Out any](c *Context[K, Out], name string, vals serde.Serde[V], outer bool) *outerSide[K, V] {
	s := &outerSide[K, V]{list: state.NewList(c.table(name), c.rt.Groups(), c.keys, vals)}
	c.tabs = append(c.tabs, s.list)
	if outer {
		s.alone = state.NewMap(c.table(name+"-alone"), c.rt.Groups(), state.PaneKeys(c.keys), serde.Unit)
		c.tabs = append(c.tabs, s.alone)
	}
	return s
}

// met records that the item of this number has found a partner.
func (s *outerSide[K, V]) met(group int, key *K, number uint64) {
	if s.alone != nil {
		s.key = state.PaneKey[K]{Key: *key, Pane: int64(number)}
		s.alone.Delete(group, &s.key)
	}
}

// keepAlone keeps the current item for later partners; met says that it has one already.
func keepAlone[K comparable, Out, V any](c *Context[K, Out], s *outerSide[K, V], v *V, keep int64, met bool) {
	until := c.time + keep + 1
	if until <= c.w {
		if !met {
			c.Late()
		}
		return
	}
	if _, err := s.list.Add(c.group, &c.key, c.time, v); err != nil {
		c.fail(err)
		return
	}
	if s.alone != nil && !met {
		all := s.list.Get(c.group, &c.key)
		newest := &all[searchTime(all, c.time+1)-1]
		s.key = state.PaneKey[K]{Key: c.key, Pane: int64(newest.Number())}
		s.alone.Upsert(c.group, &s.key)
	}
	c.SetEventTimer(until)
}

// expire drops the items whose time is < before. It calls emit for those without a partner, with
// the time of the result.
func (s *outerSide[K, V]) expire(group int, key *K, before, keep int64, emit func(v *V, t int64)) {
	if s.alone != nil {
		all := s.list.Get(group, key)
		for i := range all[:searchTime(all, before)] {
			x := &all[i]
			s.key = state.PaneKey[K]{Key: *key, Pane: int64(x.Number())}
			if s.alone.Get(group, &s.key) != nil {
				s.alone.Delete(group, &s.key)
				emit(&x.Value, x.Time+keep)
			}
		}
	}
	s.list.DropBefore(group, key, before)
}
