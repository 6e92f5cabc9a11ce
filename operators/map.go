package operators

import (
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/serde"
)

// Map returns the stream of f of each item, at the item's time. f must not keep
// the item; its result may alias it.
func Map[T, U any](in Flow[T], f func(v *T) U) Stream[U] {
	return Stream[U]{derive(in, nil, func(_ *chain.Chain, next chain.Emit[U]) chain.Emit[T] {
		var out Batch[U]
		return func(b *Batch[T]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				out.Items = append(out.Items, f(&b.Items[i]))
			}
			out.Times = append(out.Times, b.Times...)
			return next(&out)
		}
	})}
}

// MapValues is Map for the values of a keyed stream; keys stay, and so does the task that owns
// them.
func MapValues[K comparable, T, U any](in KeyedStream[K, T], f func(key *K, v *T) U) KeyedStream[K, U] {
	n := derive(in, serde.Serde[KV[K, U]](nil), func(_ *chain.Chain, next chain.Emit[KV[K, U]]) chain.Emit[KV[K, T]] {
		var out Batch[KV[K, U]]
		return func(b *Batch[KV[K, T]]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				kv := &b.Items[i]
				out.Items = append(out.Items, KV[K, U]{Key: kv.Key, Value: f(&kv.Key, &kv.Value)})
			}
			out.Times = append(out.Times, b.Times...)
			return next(&out)
		}
	})
	return keyed(n, in.keys, nil)
}
