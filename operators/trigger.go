package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
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
	agg.check(j, what, in.vals, false)
	if !win.global {
		win.check(j, what)
	}
	switch {
	case trigger.err != "":
		j.errorf("%s: %s", what, trigger.err)
	case trigger == Trigger{}:
		j.errorf("%s: no trigger given", what)
	}
	j.claim("process function", name)
	o.inOrder = trigger.wall == 0
	out := processOne(in, j.identify(in.n.stage, "process", name), o, func(x *Context[K, Windowed[A]]) Handler[T] {
		f := fold.Triggered[K, T, A]{
			Cut: win.cut, Global: win.global, Count: trigger.count, Event: trigger.event, Wall: trigger.wall,
			Parts: o.discarding, Add: agg.Add, Clone: fold.Cloner(agg.Keeps, in.vals), Plain: serde.Plain(agg.Acc),
		}
		f.Start(&x.call, agg.Acc)
		return Handler[T]{Item: f.Item, Timers: Timers{OnEvent: f.OnEvent, OnWall: f.OnWall}}
	})
	out.n.op.results = &windowResults{parts: o.discarding}
	if trigger.wall > 0 {
		out.n.varies = what + " have a trigger of the wall clock"
	}
	if agg.Acc != nil {
		out = out.With(item.WindowedSerde(agg.Acc))
	}
	return out
}

// Discarding makes AggregateTriggered forget what it has emitted: the accumulator of a window
// is zero behind each result, so that each has the items since the one before. Their sum is
// the window's result; a window gives none at its end if no items have come since the last.
// Windows hold no more than the items since their last result.
func Discarding() Option { return Option{"Discarding", func(o *options) { o.discarding = true }} }
