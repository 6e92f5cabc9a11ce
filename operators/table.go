package operators

import (
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// Table is a view of a keyed flow as the newest value of each key: a flow of changes, each
// replacing the previous value of its key.
type Table[K comparable, V any] struct {
	n    *node[Change[K, V]]
	keys serde.Serde[K]
	vals serde.Serde[V]
}

func newTable[K comparable, V any](j *Job, st *stage, keys serde.Serde[K], vals serde.Serde[V]) Table[K, V] {
	var sd serde.Serde[Change[K, V]]
	if vals = item.Default(vals); vals != nil {
		sd = item.ChangeSerde(keys, vals)
	}
	return Table[K, V]{n: newNode(j, st, sd), keys: keys, vals: vals}
}

// AsTable reads a keyed stream as a table: each item replaces its key's value. AsTableOf also
// supports items that delete it.
func AsTable[K comparable, V any](in KeyedStream[K, V]) Table[K, V] {
	t := newTable(in.n.job, in.n.stage, in.keys, in.vals)
	t.n.origin = in.n.origin
	in.n.subs = append(in.n.subs, func(c *chain.Chain) chain.Emit[KV[K, V]] {
		next := t.n.emitter(c)
		var out Batch[Change[K, V]]
		return func(b *Batch[KV[K, V]]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				out.Items = append(out.Items, Change[K, V]{Key: b.Items[i].Key, Value: b.Items[i].Value})
			}
			out.Times = append(out.Times, b.Times...)
			return next(&out)
		}
	})
	return t
}

// AsStream reads a table as the keyed stream of its new values, without deletions; use the table
// itself as a Flow to see them.
func AsStream[K comparable, V any](in Table[K, V]) KeyedStream[K, V] {
	n := derive(in, nil, func(_ *chain.Chain, next chain.Emit[KV[K, V]]) chain.Emit[Change[K, V]] {
		var out Batch[KV[K, V]]
		return func(b *Batch[Change[K, V]]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				if c := &b.Items[i]; !c.Deleted {
					out.AppendAt(KV[K, V]{Key: c.Key, Value: c.Value}, b.At(i))
				}
			}
			if out.Len() == 0 {
				return nil
			}
			return next(&out)
		}
	})
	return keyed(n, in.keys, in.vals)
}

// With sets the encoding of the values of a table.
func (s Table[K, V]) With(sd serde.Serde[V]) Table[K, V] {
	n := passOn(s.n)
	n.sd = item.ChangeSerde(s.keys, sd)
	return Table[K, V]{n: n, keys: s.keys, vals: sd}
}
