package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/internal/join"
	"tailrace.dev/tailrace/operators/item"
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
		j.errorf("%s: the values (%s) have no serde; give one with With", what, item.TypeName[V]())
	}
	latest := j.options(what, opts, "Latest").latest
	id := j.identify(in.n.stage, "process", name)
	out := processOne(versionsOf(in), id, options{inOrder: !latest}, func(x *Context[K, Update[V]]) Handler[join.Version[V]] {
		c := &x.call
		s := join.NewSide(c, "value", in.vals, latest)
		change := func(v *join.Version[V]) {
			kind, old := Insert, s.Get()
			if old != nil {
				was := Delete
				if !v.Deleted {
					was, kind = UpdateBefore, UpdateAfter
				}
				c.Emit(Update[V]{Kind: was, Value: *old}, c.Time)
				if !serde.Plain(in.vals) && c.Failed == nil {
					c.Failed = c.Out.Flush() // before the value changes in place
				}
			}
			s.Hold(v, c.Time)
			if !v.Deleted {
				c.Emit(Update[V]{Kind: kind, Value: v.Value}, c.Time)
			}
		}
		return Handler[join.Version[V]]{Item: change, Late: func(v *join.Version[V]) {
			if !s.NewerThan(c.Time) {
				change(v)
			}
		}}
	})
	if latest {
		out.n.varies = what + " take the Latest that has arrived"
	}
	if in.vals != nil {
		out = out.With(item.UpdateSerde(in.vals))
	}
	return out
}
