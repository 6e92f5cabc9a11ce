package operators

import "tailrace.dev/tailrace/operators/internal/chain"

// Observe calls f with the times of all items that pass, a batch at a time, and passes the items
// on: for measuring. The stage's tasks call f, each in its own goroutine; f must not keep the
// slice.
func Observe[T any](in Flow[T], f func(times []int64)) Stream[T] {
	n := in.flow()
	return Stream[T]{derive(in, n.sd, func(_ *chain.Chain, next chain.Emit[T]) chain.Emit[T] {
		return func(b *Batch[T]) error {
			f(b.Times)
			return next(b)
		}
	})}
}
