package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/join"
	"tailrace.dev/tailrace/operators/serde"
)

// JoinTables joins two tables into one: a key that both have has the value that f returns, which
// changes whenever a side does; a key that one side loses is deleted.
//
// Changes of both sides wait until the watermark has passed them and are processed in the order of
// their times, so that the changes of the result are a function of those of the sides; of two
// changes of one time the right side's comes first. One that comes behind the watermark is counted
// as late; it takes effect at once, unless the side's value is newer.
//
// With Latest each change is processed when it comes: which intermediate values occur, and which of
// two changes that come in the wrong order remains, depends on arrival.
func JoinTables[K comparable, L, R, Out any](left Table[K, L], right Table[K, R], name string, f func(key *K, l *L, r *R) Out, opts ...Option) Table[K, Out] {
	j := left.n.job
	needSerdes(j, name, left.vals, right.vals)
	latest := j.options(fmt.Sprintf("join %q", name), opts, "Latest").latest
	joined := process2(versionsOf(left), versionsOf(right), name, sides{!latest, !latest}, func(x *Context[K, Change[K, Out]]) Handler2[join.Version[L], join.Version[R]] {
		c := &x.call
		ls, rs := join.NewSide(c, "left", left.vals, latest), join.NewSide(c, "right", right.vals, latest)
		change := func(apply func()) {
			before := ls.Get() != nil && rs.Get() != nil
			apply()
			switch l, r := ls.Get(), rs.Get(); {
			case l != nil && r != nil:
				c.Emit(Change[K, Out]{Key: c.Key, Value: f(&c.Key, l, r)}, c.Time)
			case before:
				c.Emit(Change[K, Out]{Key: c.Key, Deleted: true}, c.Time)
			}
		}
		fromLeft := func(v *join.Version[L]) { change(func() { ls.Hold(v, c.Time) }) }
		fromRight := func(v *join.Version[R]) { change(func() { rs.Hold(v, c.Time) }) }
		return Handler2[join.Version[L], join.Version[R]]{
			Left: fromLeft, Right: fromRight,
			LateLeft: func(v *join.Version[L]) {
				if !ls.NewerThan(c.Time) {
					fromLeft(v)
				}
			},
			LateRight: func(v *join.Version[R]) {
				if !rs.NewerThan(c.Time) {
					fromRight(v)
				}
			},
		}
	})
	if latest {
		joined.n.varies = fmt.Sprintf("join %q takes the Latest that has arrived", name)
	}
	return tableOf(joined, nil)
}

// tableOf reads a keyed stream of changes as the table they make.
func tableOf[K comparable, V any](in KeyedStream[K, Change[K, V]], vals serde.Serde[V]) Table[K, V] {
	t := newTable(in.n.job, in.n.stage, in.keys, vals)
	t.n.op, t.n.origin = in.n.op, in.n.origin
	in.n.subs = append(in.n.subs, func(c *chain.Chain) chain.Emit[KV[K, Change[K, V]]] {
		next := t.n.emitter(c)
		var out Batch[Change[K, V]]
		return func(b *Batch[KV[K, Change[K, V]]]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				out.AppendAt(b.Items[i].Value, b.At(i))
			}
			return next(&out)
		}
	})
	return t
}
