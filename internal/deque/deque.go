// Package deque is a double-ended queue that reuses its memory.
package deque

// Deque is a double-ended queue that reuses its memory; it grows by doubling. The zero value is
// empty.
type Deque[T any] struct {
	buf  []T // length 0 or a power of two
	head int
	n    int
}

// Len returns the number of elements.
func (d *Deque[T]) Len() int { return d.n }

// At returns the i-th element, counted from the front. The pointer is valid until the next Push.
func (d *Deque[T]) At(i int) *T { return &d.buf[(d.head+i)&(len(d.buf)-1)] }

// Front returns the first element.
func (d *Deque[T]) Front() *T { return d.At(0) }

// Back returns the last element.
func (d *Deque[T]) Back() *T { return d.At(d.n - 1) }

// Push adds an element at the back.
func (d *Deque[T]) Push(v T) {
	if d.n == len(d.buf) {
		bigger := make([]T, max(8, 2*len(d.buf)))
		for i := range d.n {
			bigger[i] = *d.At(i)
		}
		d.buf, d.head = bigger, 0
	}
	d.n++
	*d.Back() = v
}

// PopFront removes the first element and clears it, so that it keeps nothing alive.
func (d *Deque[T]) PopFront() {
	var zero T
	*d.Front() = zero
	d.head = (d.head + 1) & (len(d.buf) - 1)
	d.n--
}

// PopBack removes the last element and clears it.
func (d *Deque[T]) PopBack() {
	var zero T
	*d.Back() = zero
	d.n--
}
