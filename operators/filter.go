package operators

import "tailrace.dev/tailrace/operators/internal/chain"

// Filter returns the stream of the items that f holds for.
func Filter[T any](in Flow[T], f func(v *T) bool) Stream[T] {
	return Stream[T]{filter(in, f)}
}

// FilterValues is Filter for a keyed stream, which stays keyed.
func FilterValues[K comparable, T any](in KeyedStream[K, T], f func(key *K, v *T) bool) KeyedStream[K, T] {
	n := filter(in, func(kv *KV[K, T]) bool { return f(&kv.Key, &kv.Value) })
	return KeyedStream[K, T]{n: n, keys: in.keys, vals: in.vals}
}

func filter[T any](in Flow[T], f func(v *T) bool) *node[T] {
	return derive(in, in.flow().sd, func(_ *chain.Chain, next chain.Emit[T]) chain.Emit[T] {
		var out Batch[T]
		return func(b *Batch[T]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				if f(&b.Items[i]) {
					out.AppendAt(b.Items[i], b.At(i))
				}
			}
			if out.Len() == 0 {
				return nil
			}
			return next(&out)
		}
	})
}

// FilterMap is Filter and Map in one: items for which f returns false are dropped.
func FilterMap[T, U any](in Flow[T], f func(v *T) (U, bool)) Stream[U] {
	return Stream[U]{derive(in, nil, func(_ *chain.Chain, next chain.Emit[U]) chain.Emit[T] {
		var out Batch[U]
		return func(b *Batch[T]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				if u, ok := f(&b.Items[i]); ok {
					out.AppendAt(u, b.At(i))
				}
			}
			if out.Len() == 0 {
				return nil
			}
			return next(&out)
		}
	})}
}
