package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/internal/fold"
)

// Suppress holds the items of a key back and emits only the last of them, a time d after the first
// that it holds: of many updates of a key, one every d of event time. d is a positive whole number
// of milliseconds. The time of the emitted item is the time of its emission.
//
// Items are processed in the order of their times, once the watermark has passed them: what is
// emitted is a function of the items and their times. An item behind the watermark is late: counted
// and dropped, or in the stream that Late returns.
//
// With HoldAtMost the state is bounded, and what is emitted early is not defined.
func Suppress[K comparable, V any](in KeyedStream[K, V], name string, d time.Duration, opts ...Option) KeyedStream[K, V] {
	j := in.n.job
	what := fmt.Sprintf("suppress %q", name)
	if d <= 0 || d%time.Millisecond != 0 {
		j.errorf("%s: %v is not a positive whole number of milliseconds", what, d)
	}
	o := j.options(what, opts, "HoldAtMost")
	j.claim("process function", name)
	o.inOrder = true
	span := d.Milliseconds()
	out := processOne(in, j.identify(in.n.stage, "process", name), o, func(x *Context[K, V]) Handler[V] {
		f := fold.Suppress[K, V]{Span: span, Most: o.holdBytes}
		f.Start(&x.call, in.vals)
		return Handler[V]{Item: f.Item, Timers: Timers{OnEvent: f.Due}}
	})
	if o.holdBytes > 0 {
		out.n.varies = what + " has HoldAtMost"
	}
	if in.vals != nil {
		out = out.With(in.vals)
	}
	return out
}

// HoldAtMost bounds what Suppress holds in a task: when its items are more than this many bytes,
// encoded and with their keys, it emits early those that are due first. Which items those are
// depends on the distribution of keys over tasks and on the order of arrival, and may differ from
// run to run. The last item of each key is emitted in any case.
func HoldAtMost(bytes int) Option {
	return Option{"HoldAtMost", func(o *options) {
		if o.holdBytes = bytes; bytes < 1 {
			o.bad = fmt.Sprintf("HoldAtMost %d bytes", bytes)
		}
	}}
}
