package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/internal/join"
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
	out := Process2(left, right, name, func(x *Context[K, Out]) Handler2[L, R] {
		c := &x.call
		ls, rs := join.NewOuterSide(c, "left", left.vals, outer.left), join.NewOuterSide(c, "right", right.vals, outer.right)
		leftAlone := func(l *L, t int64) { c.Emit(f(&c.Key, l, nil), t) }
		rightAlone := func(r *R, t int64) { c.Emit(f(&c.Key, nil, r), t) }
		return Handler2[L, R]{
			Left: func(l *L) {
				partners := join.Near(rs.List.Get(c.Group, &c.Key), c.Time, span)
				for i := range partners {
					r := &partners[i]
					c.Emit(f(&c.Key, l, &r.Value), max(c.Time, r.Time))
					rs.Met(c.Group, &c.Key, r.Number())
				}
				join.KeepAlone(c, ls, l, keep, len(partners) > 0)
			},
			Right: func(r *R) {
				partners := join.Near(ls.List.Get(c.Group, &c.Key), c.Time, span)
				for i := range partners {
					l := &partners[i]
					c.Emit(f(&c.Key, &l.Value, r), max(c.Time, l.Time))
					ls.Met(c.Group, &c.Key, l.Number())
				}
				join.KeepAlone(c, rs, r, keep, len(partners) > 0)
			},
			Timers: Timers{OnEvent: func(t int64) {
				// At this watermark the items of time t − 1 − keep and before cannot get a partner
				// any more. The time of their results is not below the previous watermark, which
				// has not reached t.
				ls.Expire(c.Group, &c.Key, t-keep, keep, leftAlone)
				rs.Expire(c.Group, &c.Key, t-keep, keep, rightAlone)
			}},
		}
	})
	out.n.op.shape = map[sides]string{{left: true}: "left outer", {right: true}: "right outer", {true, true}: "full outer"}[outer]
	return out
}
