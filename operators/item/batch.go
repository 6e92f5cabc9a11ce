package item

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
