package item

// Batch is a run of items with their event times (ms since 1970-01-01 UTC), one for each item, all
// of one key group. It belongs to the operator that made it and is valid during the call that
// passes it; the receiver only reads it. Items decoded from the log alias its memory.
type Batch[T any] struct {
	Items []T
	Times []int64
	Group int
}

// At is where an item stands among the others of its stream. An operator gives a result the At of the
// item that it is made of, or an At of its own if it is made of several.
type At struct {
	// Time is the event time, ms since 1970-01-01 UTC.
	Time int64
}

// At returns where the i-th item stands.
func (b *Batch[T]) At(i int) At { return At{b.Times[i]} }

// Len returns the number of items.
func (b *Batch[T]) Len() int { return len(b.Items) }

// Append adds an item.
func (b *Batch[T]) Append(v T, time int64) { b.AppendAt(v, At{time}) }

// AppendAt adds an item that stands at a place of its own.
func (b *Batch[T]) AppendAt(v T, at At) {
	b.Items = append(b.Items, v)
	b.Times = append(b.Times, at.Time)
}

// Reset empties the batch, keeping its memory.
func (b *Batch[T]) Reset() { b.Items, b.Times = b.Items[:0], b.Times[:0] }
