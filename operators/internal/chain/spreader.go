package chain

import "tailrace.dev/tailrace/operators/item"

// Spreader writes items without a key: to one key group between two commits and to the next one
// after. It is not in the state: a chain that replays what an instance did from one of its commits on
// has to be flushed as often as the instance was.
type Spreader[T any] struct {
	Writer[T]
	group int
}

// NewSpreader returns one that begins with a key group of its task's own.
func NewSpreader[T any](c *Chain, w Writer[T]) *Spreader[T] {
	index, _ := c.RT.Task()
	return &Spreader[T]{Writer: w, group: index % w.groups}
}

// Write writes a batch.
func (w *Spreader[T]) Write(b *item.Batch[T]) error {
	for i := range b.Items {
		if err := w.Put(w.group, &b.Items[i], b.Times[i]); err != nil {
			return err
		}
	}
	return nil
}

// Flush moves on to the next key group. What other operators flush after it goes there, which
// affects only the balance.
func (w *Spreader[T]) Flush() error {
	w.group = (w.group + 1) % w.groups
	return nil
}
