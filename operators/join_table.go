package operators

import "tailrace.dev/tailrace/operators/serde"

// JoinTable joins each item of a keyed stream with the value that the table
// has for its key at that moment; items without one give nothing. The two sides
// are not synchronised by time: the value is the newest one that has arrived.
func JoinTable[K comparable, T, V, Out any](in KeyedStream[K, T], table Table[K, V], name string, f func(key *K, v *T, with *V) Out) KeyedStream[K, Out] {
	return joinTable(in, table, name, false, f)
}

// LeftJoinTable is JoinTable that calls f for every item, with nil where the
// table has no value.
func LeftJoinTable[K comparable, T, V, Out any](in KeyedStream[K, T], table Table[K, V], name string, f func(key *K, v *T, with *V) Out) KeyedStream[K, Out] {
	return joinTable(in, table, name, true, f)
}

func joinTable[K comparable, T, V, Out any](in KeyedStream[K, T], table Table[K, V], name string, all bool, f func(key *K, v *T, with *V) Out) KeyedStream[K, Out] {
	needSerdes(in.n.job, name, serde.Unit, table.vals)
	return Process2(in, changesOf(table), name, func(c *Context[K, Out]) Handler2[T, Change[K, V]] {
		current := NewValue(c, "table", table.vals)
		return Handler2[T, Change[K, V]]{
			Left: func(v *T) {
				if with := current.Get(); with != nil || all {
					c.Emit(f(&c.key, v, with), c.time)
				}
			},
			Right: func(ch *Change[K, V]) { apply(current, ch) },
		}
	})
}

func apply[K comparable, V any](to Value[V], ch *Change[K, V]) {
	if ch.Deleted {
		to.Delete()
	} else {
		to.Put(&ch.Value)
	}
}

// changesOf reads a table as the keyed stream of its changes.
func changesOf[K comparable, V any](t Table[K, V]) KeyedStream[K, Change[K, V]] {
	n := derive(t, nil, func(_ *chain, next emit[KV[K, Change[K, V]]]) emit[Change[K, V]] {
		var out Batch[KV[K, Change[K, V]]]
		return func(b *Batch[Change[K, V]]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				out.Append(KV[K, Change[K, V]]{b.Items[i].Key, b.Items[i]}, b.Times[i])
			}
			return next(&out)
		}
	})
	return KeyedStream[K, Change[K, V]]{n: n, keys: t.keys}
}

// tableOf reads a keyed stream of changes as the table they make.
func tableOf[K comparable, V any](in KeyedStream[K, Change[K, V]], vals serde.Serde[V]) Table[K, V] {
	t := newTable(in.n.job, in.n.stage, in.keys, vals)
	t.n.op = in.n.op
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

// JoinTables joins two tables into one: a key that both have has the value f
// gives, which changes whenever a side does; a key that one side loses is
// deleted.
func JoinTables[K comparable, L, R, Out any](left Table[K, L], right Table[K, R], name string, f func(key *K, l *L, r *R) Out) Table[K, Out] {
	needSerdes(left.n.job, name, left.vals, right.vals)
	joined := Process2(changesOf(left), changesOf(right), name, func(c *Context[K, Change[K, Out]]) Handler2[Change[K, L], Change[K, R]] {
		ls := NewValue(c, "left", left.vals)
		rs := NewValue(c, "right", right.vals)
		changed := func(before bool) {
			switch l, r := ls.Get(), rs.Get(); {
			case l != nil && r != nil:
				c.Emit(Change[K, Out]{Key: c.key, Value: f(&c.key, l, r)}, c.time)
			case before:
				c.Emit(Change[K, Out]{Key: c.key, Deleted: true}, c.time)
			}
		}
		return Handler2[Change[K, L], Change[K, R]]{
			Left: func(ch *Change[K, L]) {
				before := ls.Get() != nil && rs.Get() != nil
				apply(ls, ch)
				changed(before)
			},
			Right: func(ch *Change[K, R]) {
				before := ls.Get() != nil && rs.Get() != nil
				apply(rs, ch)
				changed(before)
			},
		}
	})
	return tableOf(joined, nil)
}

// FilterTable returns the table of the entries that f holds for. An entry for
// which it holds no longer is deleted.
func FilterTable[K comparable, V any](in Table[K, V], f func(key *K, v *V) bool) Table[K, V] {
	t := newTable(in.n.job, in.n.stage, in.keys, in.vals)
	in.n.subs = append(in.n.subs, func(c *chain) emit[Change[K, V]] {
		next := t.n.emitter(c)
		var out Batch[Change[K, V]]
		return func(b *Batch[Change[K, V]]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				ch := b.Items[i]
				if !ch.Deleted && !f(&ch.Key, &ch.Value) {
					// Said again for a key that was not there: a deletion is
					// harmless, a memory of who was there is not free.
					ch = Change[K, V]{Key: ch.Key, Deleted: true}
				}
				out.Append(ch, b.Times[i])
			}
			return next(&out)
		}
	})
	return t
}
