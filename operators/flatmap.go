package operators

import (
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
)

// FlatMap returns the stream of everything that f emits for each item, at the
// item's time. f must not keep the item, nor emit after it has returned.
func FlatMap[T, U any](in Flow[T], f func(v *T, emit func(U))) Stream[U] {
	return Stream[U]{derive(in, nil, func(c *chain.Chain, next chain.Emit[U]) chain.Emit[T] {
		out := chain.NewBuffer(c, next)
		// The variables that emit uses are set before each call of f, so that emit can be one
		// function for the life of the chain.
		var group int
		var at item.At
		var failed error
		emit := func(u U) {
			if failed == nil {
				failed = out.Add(group, u, at)
			}
		}
		return func(b *Batch[T]) error {
			group, failed = b.Group, nil
			for i := range b.Items {
				at = b.At(i)
				f(&b.Items[i], emit)
				if failed != nil {
					return failed
				}
			}
			return out.Flush()
		}
	})}
}
