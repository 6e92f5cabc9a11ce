package operators

// maxBatch is how many items an operator passes on in one call: few enough that a batch of 100-byte
// items stays in the second-level cache, enough that the cost of a call per item is negligible.
const maxBatch = 512

// Batch is a run of items with their event times (ms since 1970-01-01 UTC), one for each item, all
// of one key group. It belongs to the operator that made it and is valid during the call that
// passes it; the receiver only reads it. Items decoded from the log alias its memory.
type Batch[T any] struct {
	Items []T
	Times []int64
	Group int
}

// Len returns the number of items.
func (b *Batch[T]) Len() int { return len(b.Items) }

// Append adds an item.
func (b *Batch[T]) Append(v T, time int64) {
	b.Items = append(b.Items, v)
	b.Times = append(b.Times, time)
}

// Reset empties the batch, keeping its memory.
func (b *Batch[T]) Reset() { b.Items, b.Times = b.Items[:0], b.Times[:0] }

// slot adds an item without setting it and returns it. It has the contents of an earlier batch.
func (b *Batch[T]) slot(time int64) *T {
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

// emit receives a batch; it connects the operators of a chain.
type emit[T any] func(b *Batch[T]) error

// buffer collects an operator's results and passes them on in batches of one key group. An operator
// calls flush before it returns to its caller, so that nothing is left when the task commits.
type buffer[T any] struct {
	batch Batch[T]
	next  emit[T]
}

func newBuffer[T any](c *chain, next emit[T]) *buffer[T] {
	b := &buffer[T]{next: next}
	c.transients = append(c.transients, b)
	return b
}

func (b *buffer[T]) discard() { b.batch.Reset() }

func (b *buffer[T]) add(group int, v T, time int64) error {
	if n := len(b.batch.Items); n == maxBatch || n > 0 && b.batch.Group != group {
		if err := b.flush(); err != nil {
			return err
		}
	}
	b.batch.Group = group
	b.batch.Append(v, time)
	return nil
}

func (b *buffer[T]) flush() error {
	if len(b.batch.Items) == 0 {
		return nil
	}
	err := b.next(&b.batch)
	b.batch.Reset()
	return err
}
