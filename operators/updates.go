package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/serde"
)

// Updates reads a table as the stream of the changes of its values, each with its Kind. A Change of
// a table says what a key's value is from now on; an update also says what it was: Insert of a
// first value, UpdateBefore of the old followed by UpdateAfter of the new one, Delete of the last.
// A deletion of a key that is not there gives nothing. It keeps the newest value of each key.
//
// The changes of a key wait until the watermark has passed them and are processed in the order of
// their times, so that the updates are a function of the table's changes. One that comes behind the
// watermark is counted as late; it takes effect at once, unless the value is newer. With Latest
// each change is processed when it comes.
func Updates[K comparable, V any](in Table[K, V], name string, opts ...Option) KeyedStream[K, Update[V]] {
	j := in.n.job
	what := fmt.Sprintf("updates %q", name)
	j.claim("process function", name)
	if in.vals == nil {
		j.errorf("%s: the values (%s) have no serde; give one with With", what, typeName[V]())
	}
	latest := j.options(what, opts, "Latest").latest
	id := j.identify(in.n.stage, "process", name)
	out := process(versionsOf(in), id, options{inOrder: !latest}, func(c *Context[K, Update[V]]) Handler[version[V]] {
		s := newSide(c, "value", in.vals, latest)
		change := func(v *version[V]) {
			kind, old := Insert, s.get()
			if old != nil {
				was := Delete
				if !v.deleted {
					was, kind = UpdateBefore, UpdateAfter
				}
				c.Emit(Update[V]{was, *old}, c.time)
				if !serde.Plain(in.vals) && c.failed == nil {
					c.failed = c.out.flush() // before the value changes in place
				}
			}
			s.hold(v, c.time)
			if !v.deleted {
				c.Emit(Update[V]{kind, v.value}, c.time)
			}
		}
		return Handler[version[V]]{Item: change, Late: func(v *version[V]) {
			if !s.newerThan(c.time) {
				change(v)
			}
		}}
	})
	if latest {
		out.n.varies = what + " take the Latest that has arrived"
	}
	if in.vals != nil {
		out = out.With(UpdateSerde(in.vals))
	}
	return out
}
