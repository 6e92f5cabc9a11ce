package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/internal/join"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Forever as JoinStreams' within keeps items for ever.
const Forever time.Duration = -1

// JoinStreams joins two keyed streams item by item: f is called for each pair of a left and a right
// item of one key whose times are at most `within` apart, whichever came first. The result does not
// depend on the order of arrival: an item is kept until the watermark says that nothing near enough
// can come any more. within is a whole number of milliseconds, or Forever.
//
// A pair's time is that of the later item. An item that comes when the watermark is more than
// `within` ahead of it is joined with the partners that are still kept; if there is none, it is
// counted as late. It is not kept itself: nothing that may still come is near enough.
func JoinStreams[K comparable, L, R, Out any](left KeyedStream[K, L], right KeyedStream[K, R], name string, within time.Duration, f func(key *K, l *L, r *R) Out) KeyedStream[K, Out] {
	j := left.n.job
	needSerdes(j, name, left.vals, right.vals)
	if within != Forever && (within < 0 || within%time.Millisecond != 0) {
		j.errorf("join %q: within %v is not a whole number of milliseconds ≥ 0", name, within)
	}
	span := within.Milliseconds()
	if within == Forever {
		span = MaxTime
	}
	return Process2(left, right, name, func(x *Context[K, Out]) Handler2[L, R] {
		c := &x.call
		ls := process.NewList(c, "left", left.vals)
		rs := process.NewList(c, "right", right.vals)
		return Handler2[L, R]{
			Left: func(l *L) {
				partners := join.Near(rs.All(), c.Time, span)
				for i := range partners {
					r := &partners[i]
					c.Emit(f(&c.Key, l, &r.Value), max(c.Time, r.Time))
				}
				join.Keep(c, ls, l, span, len(partners) > 0)
			},
			Right: func(r *R) {
				partners := join.Near(ls.All(), c.Time, span)
				for i := range partners {
					l := &partners[i]
					c.Emit(f(&c.Key, &l.Value, r), max(c.Time, l.Time))
				}
				join.Keep(c, rs, r, span, len(partners) > 0)
			},
			Timers: Timers{OnEvent: func(t int64) {
				// Timer t means that the watermark has reached t: items of time t − 1 − span and
				// before cannot get a partner any more.
				ls.DropBefore(t - span)
				rs.DropBefore(t - span)
			}},
		}
	})
}

func needSerdes[L, R any](j *Job, name string, l serde.Serde[L], r serde.Serde[R]) {
	if l == nil {
		j.errorf("join %q: the left values (%s) have no serde; give one with With", name, item.TypeName[L]())
	}
	if r == nil {
		j.errorf("join %q: the right values (%s) have no serde; give one with With", name, item.TypeName[R]())
	}
}

// JoinWindows joins two keyed streams window by window: when a window closes, f is called for each
// pair of a left and a right item of one key in it, left items in the order of time, and for each
// its right ones. With overlapping windows a pair is joined in each window that holds both. Results
// have the window's end − 1 as their time.
//
// An item all of whose windows are closed is counted as late and dropped.
func JoinWindows[K comparable, L, R, Out any](left KeyedStream[K, L], right KeyedStream[K, R], name string, win Windows, f func(key *K, start, end int64, l *L, r *R) Out) KeyedStream[K, Out] {
	j := left.n.job
	needSerdes(j, name, left.vals, right.vals)
	win.check(j, fmt.Sprintf("join %q", name))
	return Process2(left, right, name, func(x *Context[K, Out]) Handler2[L, R] {
		c := &x.call
		ls := process.NewList(c, "left", left.vals)
		rs := process.NewList(c, "right", right.vals)
		return Handler2[L, R]{
			Left:  func(l *L) { join.KeepForWindow(c, win.cut, ls, l) },
			Right: func(r *R) { join.KeepForWindow(c, win.cut, rs, r) },
			Timers: Timers{OnEvent: func(end int64) {
				start := end - win.cut.Size
				lall, rall := ls.All(), rs.All()
				lall = lall[state.SearchTime(lall, start):state.SearchTime(lall, end)]
				rall = rall[state.SearchTime(rall, start):state.SearchTime(rall, end)]
				for i := range lall {
					for k := range rall {
						c.Emit(f(&c.Key, start, end, &lall[i].Value, &rall[k].Value), end-1)
					}
				}
				ls.DropBefore(start + win.cut.Slide)
				rs.DropBefore(start + win.cut.Slide)
			}},
		}
	})
}
