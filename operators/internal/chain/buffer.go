package chain

import "tailrace.dev/tailrace/operators/item"

// maxBatch is how many items an operator passes on in one call: few enough that a batch of 100-byte
// items stays in the second-level cache, enough that the cost of a call per item is negligible.
const maxBatch = 512

// slot adds an item to a batch without setting it and returns it. It has the contents of an earlier
// batch.
func slot[T any](b *item.Batch[T], time int64) *T {
	n := len(b.Items)
	if n < cap(b.Items) {
		b.Items = b.Items[:n+1]
	} else {
		var zero T
		b.Items = append(b.Items, zero)
	}
	b.Times = append(b.Times, time)
	return &b.Items[n]
}

// Emit receives a batch; it connects the operators of a chain.
type Emit[T any] func(b *item.Batch[T]) error

// Buffer collects an operator's results and passes them on in batches of one key group. An operator
// calls Flush before it returns to its caller, so that nothing is left when the task commits.
type Buffer[T any] struct {
	batch item.Batch[T]
	next  Emit[T]
}

// NewBuffer returns a buffer of an operator of c that passes batches to next.
func NewBuffer[T any](c *Chain, next Emit[T]) *Buffer[T] {
	b := &Buffer[T]{next: next}
	c.transients = append(c.transients, b)
	return b
}

func (b *Buffer[T]) discard() { b.batch.Reset() }

// Add adds a result under the key group.
func (b *Buffer[T]) Add(group int, v T, at item.At) error {
	if n := len(b.batch.Items); n == maxBatch || n > 0 && b.batch.Group != group {
		if err := b.Flush(); err != nil {
			return err
		}
	}
	b.batch.Group = group
	b.batch.AppendAt(v, at)
	return nil
}

// Flush passes on what has been added.
func (b *Buffer[T]) Flush() error {
	if len(b.batch.Items) == 0 {
		return nil
	}
	err := b.next(&b.batch)
	b.batch.Reset()
	return err
}
