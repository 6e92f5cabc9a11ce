package operators

import (
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/join"
)

// versionsOf reads a table as the keyed stream of its versions.
func versionsOf[K comparable, V any](t Table[K, V]) KeyedStream[K, join.Version[V]] {
	n := derive(t, nil, func(_ *chain.Chain, next chain.Emit[KV[K, join.Version[V]]]) chain.Emit[Change[K, V]] {
		var out Batch[KV[K, join.Version[V]]]
		return func(b *Batch[Change[K, V]]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				ch := &b.Items[i]
				out.AppendAt(KV[K, join.Version[V]]{Key: ch.Key, Value: join.Version[V]{Deleted: ch.Deleted, Value: ch.Value}}, b.At(i))
			}
			return next(&out)
		}
	})
	return KeyedStream[K, join.Version[V]]{n: n, keys: t.keys, vals: join.VersionSerde(t.vals)}
}
