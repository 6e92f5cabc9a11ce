package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Trigger says when AggregateTriggered emits the result of a window that is still open. Make
// one with EveryCount, EveryEventTime or EveryWallTime.
type Trigger struct {
	count       int64
	event, wall int64 // ms
	err         string
}

// EveryCount emits a window's result at every n-th item of its key.
func EveryCount(n int) Trigger {
	if n < 1 {
		return Trigger{err: fmt.Sprintf("a trigger at every %d items", n)}
	}
	return Trigger{count: int64(n)}
}

// EveryEventTime emits a window's result when event time gets to a multiple of d, if there
// were items of its key since the last one.
func EveryEventTime(d time.Duration) Trigger {
	t := triggerAfter(d)
	t.event = d.Milliseconds()
	return t
}

// EveryWallTime emits a window's result a time d of the wall clock after the first item of
// its key that the last one does not have. What is in it depends on the clock: it differs
// from run to run. The result at the window's end does not.
func EveryWallTime(d time.Duration) Trigger {
	t := triggerAfter(d)
	t.wall = d.Milliseconds()
	return t
}

func triggerAfter(d time.Duration) (t Trigger) {
	if d <= 0 || d%time.Millisecond != 0 {
		t.err = fmt.Sprintf("a trigger every %v: not a positive whole number of milliseconds", d)
	}
	return t
}

// Global returns the window that holds all times. It ends with the input; AggregateTriggered
// takes it, others do not.
func Global() Windows {
	return Windows{global: true, err: "a global window has results by a trigger only: use AggregateTriggered"}
}

// AggregateTriggered folds the items of each key and window, and emits what a window has at
// each time that the trigger says, and at the window's end. Each result has all of the
// window's items until then. The window's end is the last result of a window; its time is
// End − 1. With Discarding each result has the items since the one before.
//
// Items are folded in the order of their times, once the watermark has passed them, and so
// every result is a function of the items and their times; of items of one key and time that
// come from several partitions the order is not defined. With EveryWallTime items are folded
// when they come, and only the results at the ends of windows are a function.
//
// An item behind the watermark is late: counted and dropped, or in the stream that Late
// returns. With EveryWallTime it is late if all its windows are closed.
func AggregateTriggered[K comparable, T, A any](in KeyedStream[K, T], name string, win Windows, agg Aggregator[T, A], trigger Trigger, opts ...Option) KeyedStream[K, Windowed[A]] {
	j := in.n.job
	what := fmt.Sprintf("triggered windows %q", name)
	o := j.options(what, opts, "Discarding")
	agg.check(j, what, false)
	if !win.global {
		win.check(j, what)
	}
	switch {
	case trigger.err != "":
		j.errorf("%s: %s", what, trigger.err)
	case trigger == Trigger{}:
		j.errorf("%s: no trigger given", what)
	}
	if agg.Keeps && in.vals == nil {
		j.errorf("%s: items are kept and have no serde; give one with With", what)
	}
	j.claim("process function", name)
	o.inOrder = trigger.wall == 0
	out := process(in, j.identify(in.n.stage, "process", name), o, func(c *Context[K, Windowed[A]]) Handler[T] {
		var sd serde.Serde[triggered[A]]
		if agg.Acc != nil {
			sd = triggeredSerde(agg.Acc)
		}
		x := &triggeredOp[K, A]{c: c, win: win, trigger: trigger, parts: o.discarding, open: NewMap(c, "windows", serde.Int64, sd), plain: serde.Plain(agg.Acc)}
		clone := cloner(agg.Keeps, in.vals)
		h := Handler[T]{Item: func(v *T) {
			first, last := x.windows(c.time)
			if last < first {
				return // a gap
			}
			if last <= c.w {
				c.Late()
				return
			}
			for end := first; ; end += win.cut.Slide {
				if end > c.w {
					own := v
					if clone != nil { // one a window
						var err error
						if own, err = clone(v); err != nil {
							c.fail(err)
							return
						}
					}
					s := x.window(end)
					agg.Add(&s.acc, own, c.time)
					x.added(s, end)
				}
				if end == last {
					return
				}
			}
		}}
		h.OnEvent, h.OnWall = x.onEvent, x.onWall
		return h
	})
	out.n.op.results = &windowResults{parts: o.discarding}
	if trigger.wall > 0 {
		out.n.varies = what + " have a trigger of the wall clock"
	}
	if agg.Acc != nil {
		out = out.With(WindowedSerde(agg.Acc))
	}
	return out
}

// Discarding makes AggregateTriggered forget what it has emitted: the accumulator of a window
// is zero behind each result, so that each has the items since the one before. Their sum is
// the window's result; a window gives none at its end if no items have come since the last.
// Windows hold no more than the items since their last result.
func Discarding() Option { return Option{"Discarding", func(o *options) { o.discarding = true }} }

// triggered is an open window of a key: n items have come since its last result, and time is
// that of the newest.
type triggered[A any] struct {
	n, time int64
	acc     A
}

func triggeredSerde[A any](acc serde.Serde[A]) serde.Serde[triggered[A]] {
	return serde.New("triggered "+serde.NameOf(acc),
		func(dst []byte, v *triggered[A]) []byte {
			return acc.Append(serde.AppendInt64(serde.AppendInt64(dst, v.n), v.time), &v.acc)
		},
		func(r *serde.Reader, v *triggered[A]) {
			v.n, v.time = r.Int64(), r.Int64()
			serde.Take(r, acc, &v.acc)
		})
}

// triggeredOp has the open windows of the current key, by their ends.
type triggeredOp[K comparable, A any] struct {
	c       *Context[K, Windowed[A]]
	win     Windows
	trigger Trigger
	parts   bool // a result has only the items since the one before
	open    MapState[int64, triggered[A]]
	plain   bool // accumulators hold no memory
}

// windows returns the ends of the first and the last window that hold a time.
func (x *triggeredOp[K, A]) windows(t int64) (first, last int64) {
	if x.win.global {
		return MaxTime, MaxTime
	}
	pane := x.win.cut.PaneOf(t)
	if last = x.win.cut.Last(pane); last < pane {
		return 0, -1
	}
	return x.win.cut.First(pane), last
}

// window returns the open window that ends at end.
func (x *triggeredOp[K, A]) window(end int64) *triggered[A] {
	if s := x.open.Update(end); s != nil {
		return s
	}
	s := x.open.Upsert(end)
	s.time = MinTime
	x.c.SetEventTimer(end)
	return s
}

// added is called when the current item was added to a window.
func (x *triggeredOp[K, A]) added(s *triggered[A], end int64) {
	c := x.c
	s.n, s.time = s.n+1, max(s.time, c.time)
	switch {
	case s.n == x.trigger.count:
		x.early(s, end, s.time)
	case s.n > 1:
	case x.trigger.event > 0:
		if at := (state.Aligned{Pane: x.trigger.event}).PaneOf(c.time); at < end {
			c.SetEventTimer(at)
		}
	case x.trigger.wall > 0:
		c.SetWallTimer(c.Now() + x.trigger.wall)
	}
}

// early emits the result of a window that is still open.
func (x *triggeredOp[K, A]) early(s *triggered[A], end, t int64) {
	x.emit(s, end, t)
	if s.n = 0; x.parts {
		var zero A
		s.acc = zero
	}
}

func (x *triggeredOp[K, A]) emit(s *triggered[A], end, t int64) {
	c, start := x.c, MinTime
	if !x.win.global {
		start = end - x.win.cut.Size
	}
	if c.failed != nil {
		return
	}
	// Not before the watermark; in order, the current time may be a moment later.
	if c.failed = c.out.add(c.group, KV[K, Windowed[A]]{c.key, Windowed[A]{Start: start, End: end, Value: s.acc}}, max(t, c.w)); c.failed == nil && !x.plain {
		c.failed = c.out.flush() // before the accumulator is changed in place
	}
}

func (x *triggeredOp[K, A]) onEvent(t int64) {
	for _, end := range x.open.Keys() {
		switch s := x.open.Get(end); {
		case end <= t:
			if s.n > 0 || !x.parts {
				x.emit(s, end, end-1)
			}
			x.open.Delete(end)
		case x.trigger.event > 0 && t%x.trigger.event == 0 && s.n > 0:
			x.early(x.open.Update(end), end, t-1)
		}
	}
}

func (x *triggeredOp[K, A]) onWall(int64) {
	for _, end := range x.open.Keys() {
		if s := x.open.Get(end); s.n > 0 {
			x.early(x.open.Update(end), end, s.time)
		}
	}
}
