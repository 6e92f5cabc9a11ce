package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/internal/join"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/serde"
)

// JoinTable joins each item of a keyed stream with the value that the table has for its key as of
// the item's time: the newest one whose time is not later. Items without a value give nothing. An
// item waits until the watermark has passed its time, so that no change of the table up to that
// time is missing; items are joined in the order of their times. So the answer is a function of the
// two sides' items and times, whichever is read faster.
//
// The watermark is that of both sides. A table that changes seldom delays the stream, unless its
// source is Idle.
//
// An item that comes behind the watermark is counted as late and dropped: the value of that time is
// no longer known. A change of the table that comes behind it is counted as late and holds for the
// items that have not been joined yet.
//
// With Latest an item is joined at once, with the value that has arrived last.
func JoinTable[K comparable, T, V, Out any](in KeyedStream[K, T], table Table[K, V], name string, f func(key *K, v *T, with *V) Out, opts ...Option) KeyedStream[K, Out] {
	return joinTable(in, table, name, false, f, opts)
}

// LeftJoinTable is JoinTable that calls f for every item, with nil where the
// table has no value.
func LeftJoinTable[K comparable, T, V, Out any](in KeyedStream[K, T], table Table[K, V], name string, f func(key *K, v *T, with *V) Out, opts ...Option) KeyedStream[K, Out] {
	return joinTable(in, table, name, true, f, opts)
}

func joinTable[K comparable, T, V, Out any](in KeyedStream[K, T], table Table[K, V], name string, all bool, f func(key *K, v *T, with *V) Out, opts []Option) KeyedStream[K, Out] {
	j := in.n.job
	needSerdes(j, name, serde.Unit, table.vals)
	emit := func(c *process.Call[K, Out], v *T, with *V) {
		if with != nil || all {
			c.Emit(f(&c.Key, v, with), c.Time)
		}
	}
	if j.options(fmt.Sprintf("join %q", name), opts, "Latest").latest {
		out := process2(in, versionsOf(table), name, sides{}, func(x *Context[K, Out]) Handler2[T, join.Version[V]] {
			c := &x.call
			current := process.NewValue(c, "table", table.vals)
			return Handler2[T, join.Version[V]]{
				Left:  func(v *T) { emit(c, v, current.Get()) },
				Right: func(v *join.Version[V]) { join.Hold(current, v) },
			}
		})
		out.n.varies = fmt.Sprintf("join %q takes the Latest that has arrived", name)
		return out
	}
	table.n.asOf(fmt.Sprintf("join %q", name))
	return process2(in, versionsOf(table), name, sides{left: true}, func(x *Context[K, Out]) Handler2[T, join.Version[V]] {
		c := &x.call
		h := join.NewHistory(c.Table("versions"), c.RT.Groups(), c.Keys, table.vals)
		c.AddTable(h.List)
		return Handler2[T, join.Version[V]]{
			Left: func(v *T) { emit(c, v, h.At(c.Group, &c.Key, c.Time)) },
			Right: func(v *join.Version[V]) {
				if c.Time < c.W {
					c.Late()
				}
				until, prune, err := h.Add(c.Group, &c.Key, c.Time, v)
				if err != nil {
					c.Fail(err)
				} else if prune {
					c.SetEventTimer(process.Passed(until))
				}
			},
			Timers: Timers{OnEvent: func(t int64) { h.Prune(c.Group, &c.Key, t) }},
		}
	})
}

// asOf reports an error if a table's value at a time is not a function of the input: a join with it
// as of that time would not be one either.
func (n *node[T]) asOf(what string) {
	if n.varies != "" {
		n.job.errorf("%s: what its table holds at a time differs from run to run (%s): make that InOrder or Final, or join with the Latest", what, n.varies)
	}
}
