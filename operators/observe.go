package operators

// Observe lets f see the times of all items that pass, a batch at a time, and
// hands them on: for measuring. f is called by the stage's tasks, each in its own
// goroutine, and must not keep the slice.
func Observe[T any](in Flow[T], f func(times []int64)) Stream[T] {
	n := in.flow()
	return Stream[T]{derive(in, n.sd, func(_ *chain, next emit[T]) emit[T] {
		return func(b *Batch[T]) error {
			f(b.Times)
			return next(b)
		}
	})}
}
