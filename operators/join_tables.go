package operators

import (
	"fmt"

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
	joined := process2(versionsOf(left), versionsOf(right), name, sides{!latest, !latest}, func(c *Context[K, Change[K, Out]]) Handler2[version[L], version[R]] {
		ls, rs := newSide(c, "left", left.vals, latest), newSide(c, "right", right.vals, latest)
		change := func(apply func()) {
			before := ls.get() != nil && rs.get() != nil
			apply()
			switch l, r := ls.get(), rs.get(); {
			case l != nil && r != nil:
				c.Emit(Change[K, Out]{Key: c.key, Value: f(&c.key, l, r)}, c.time)
			case before:
				c.Emit(Change[K, Out]{Key: c.key, Deleted: true}, c.time)
			}
		}
		fromLeft := func(v *version[L]) { change(func() { ls.hold(v, c.time) }) }
		fromRight := func(v *version[R]) { change(func() { rs.hold(v, c.time) }) }
		return Handler2[version[L], version[R]]{
			Left: fromLeft, Right: fromRight,
			LateLeft: func(v *version[L]) {
				if !ls.newerThan(c.time) {
					fromLeft(v)
				}
			},
			LateRight: func(v *version[R]) {
				if !rs.newerThan(c.time) {
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

// since is a value and the time from which on it holds.
type since[V any] struct {
	time  int64
	value V
}

func sinceSerde[V any](vals serde.Serde[V]) serde.Serde[since[V]] {
	return serde.New("since of "+serde.NameOf(vals),
		func(dst []byte, v *since[V]) []byte {
			return vals.Append(serde.AppendInt64(dst, v.time), &v.value)
		},
		func(r *serde.Reader, v *since[V]) {
			v.time = r.Int64()
			serde.Take(r, vals, &v.value)
		})
}

// side is the value of one side of a join of tables for the current key: the latest one, or one
// with its time.
type side[V any] struct {
	latest Value[V]
	timed  Value[since[V]]
}

func newSide[V any, K comparable, Out any](c *Context[K, Out], name string, vals serde.Serde[V], latest bool) side[V] {
	if latest {
		return side[V]{latest: NewValue(c, name, vals)}
	}
	return side[V]{timed: NewValue(c, name, sinceSerde(vals))}
}

func (s side[V]) get() *V {
	if s.latest != nil {
		return s.latest.Get()
	}
	if x := s.timed.Get(); x != nil {
		return &x.value
	}
	return nil
}

func (s side[V]) hold(v *version[V], t int64) {
	switch {
	case s.latest != nil:
		hold(s.latest, v)
	case v.deleted:
		s.timed.Delete()
	default:
		s.timed.Put(&since[V]{t, v.value})
	}
}

// newerThan reports whether the value holds since a time after t.
func (s side[V]) newerThan(t int64) bool {
	x := s.timed.Get()
	return x != nil && x.time > t
}

// tableOf reads a keyed stream of changes as the table they make.
func tableOf[K comparable, V any](in KeyedStream[K, Change[K, V]], vals serde.Serde[V]) Table[K, V] {
	t := newTable(in.n.job, in.n.stage, in.keys, vals)
	t.n.op, t.n.varies = in.n.op, in.n.varies
	in.n.subs = append(in.n.subs, func(c *chain) emit[KV[K, Change[K, V]]] {
		next := t.n.emitter(c)
		var out Batch[Change[K, V]]
		return func(b *Batch[KV[K, Change[K, V]]]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				out.Append(b.Items[i].Value, b.Times[i])
			}
			return next(&out)
		}
	})
	return t
}
