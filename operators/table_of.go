package operators

import (
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/serde"
)

// AsTableOf reads a keyed stream as a table: value returns the value that an item gives its key, or
// false if the item deletes the key (a tombstone). The result of value may alias the item; if it
// has another type than the item, With sets its encoding.
//
// Every reader of the table sees the deletion: a join as of a time finds nothing from then on, a
// join of tables deletes its own key, ToSink gets a Change that is Deleted. A deleted key uses no
// memory, and so a change that comes behind the watermark may restore it even if the change is
// older than the deletion.
//
// A table that went through KeyBy, whose items are Changes, becomes a table again by
//
//	AsTableOf(in, func(_ *K, c *Change[K0, V]) (V, bool) { return c.Value, !c.Deleted })
func AsTableOf[K comparable, T, V any](in KeyedStream[K, T], value func(key *K, v *T) (V, bool)) Table[K, V] {
	vals, _ := any(in.vals).(serde.Serde[V]) // if V is T
	t := newTable(in.n.job, in.n.stage, in.keys, vals)
	t.n.origin = in.n.origin
	in.n.subs = append(in.n.subs, func(c *chain.Chain) chain.Emit[KV[K, T]] {
		next := t.n.emitter(c)
		var out Batch[Change[K, V]]
		return func(b *Batch[KV[K, T]]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				kv := &b.Items[i]
				ch := Change[K, V]{Key: kv.Key}
				if v, ok := value(&kv.Key, &kv.Value); ok {
					ch.Value = v
				} else {
					ch.Deleted = true
				}
				out.AppendAt(ch, b.At(i))
			}
			return next(&out)
		}
	})
	return t
}
