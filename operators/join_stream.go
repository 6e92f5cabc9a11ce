package operators

import (
	"fmt"
	"time"

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
	return Process2(left, right, name, func(c *Context[K, Out]) Handler2[L, R] {
		ls := NewList(c, "left", left.vals)
		rs := NewList(c, "right", right.vals)
		return Handler2[L, R]{
			Left: func(l *L) {
				partners := near(rs.All(), c.time, span)
				for i := range partners {
					r := &partners[i]
					c.Emit(f(&c.key, l, &r.Value), max(c.time, r.Time))
				}
				keepForJoin(c, ls, l, span, len(partners) > 0)
			},
			Right: func(r *R) {
				partners := near(ls.All(), c.time, span)
				for i := range partners {
					l := &partners[i]
					c.Emit(f(&c.key, &l.Value, r), max(c.time, l.Time))
				}
				keepForJoin(c, rs, r, span, len(partners) > 0)
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

// near returns the values whose time is at most span from t.
func near[V any](all []state.Elem[V], t, span int64) []state.Elem[V] {
	if span == MaxTime {
		return all
	}
	from := searchTime(all, t-span)
	return all[from : from+searchTime(all[from:], t+span+1)]
}

// searchTime returns how many of the values, which are sorted, have a time < t.
func searchTime[V any](all []state.Elem[V], t int64) int {
	lo, hi := 0, len(all)
	for lo < hi {
		if m := int(uint(lo+hi) / 2); all[m].Time < t {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// keepForJoin keeps an item for later partners; joined says that it has found one already.
func keepForJoin[K comparable, Out, V any](c *Context[K, Out], list List[V], v *V, span int64, joined bool) {
	if span == MaxTime {
		list.Add(c.time, v)
		return
	}
	until := c.time + span + 1 // at this watermark nothing ≤ time + span comes
	if until <= c.w {
		if !joined {
			c.Late()
		}
		return
	}
	list.Add(c.time, v)
	c.SetEventTimer(until)
}

func needSerdes[L, R any](j *Job, name string, l serde.Serde[L], r serde.Serde[R]) {
	if l == nil {
		j.errorf("join %q: the left values (%s) have no serde; give one with With", name, typeName[L]())
	}
	if r == nil {
		j.errorf("join %q: the right values (%s) have no serde; give one with With", name, typeName[R]())
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
	return Process2(left, right, name, func(c *Context[K, Out]) Handler2[L, R] {
		ls := NewList(c, "left", left.vals)
		rs := NewList(c, "right", right.vals)
		return Handler2[L, R]{
			Left:  func(l *L) { keepForWindow(c, win, ls, l) },
			Right: func(r *R) { keepForWindow(c, win, rs, r) },
			Timers: Timers{OnEvent: func(end int64) {
				start := end - win.cut.Size
				lall, rall := ls.All(), rs.All()
				lall = lall[searchTime(lall, start):searchTime(lall, end)]
				rall = rall[searchTime(rall, start):searchTime(rall, end)]
				for i := range lall {
					for k := range rall {
						c.Emit(f(&c.key, start, end, &lall[i].Value, &rall[k].Value), end-1)
					}
				}
				ls.DropBefore(start + win.cut.Slide)
				rs.DropBefore(start + win.cut.Slide)
			}},
		}
	})
}

func keepForWindow[K comparable, Out, V any](c *Context[K, Out], win Windows, list List[V], v *V) {
	pane := win.cut.PaneOf(c.time)
	last := win.cut.Last(pane)
	if last < pane {
		return // a gap
	}
	if last <= c.w {
		c.Late()
		return
	}
	list.Add(c.time, v)
	for end := max(win.cut.First(pane), win.cut.After(c.w)); end <= last; end += win.cut.Slide {
		c.SetEventTimer(end)
	}
}
