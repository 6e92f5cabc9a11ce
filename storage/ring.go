package storage

// ring is a queue that reuses its memory; it grows by doubling.
type ring[T any] struct {
	buf  []T // length 0 or a power of two
	head int
	n    int
}

func (r *ring[T]) len() int { return r.n }

func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring[T]) front() *T { return r.at(0) }

func (r *ring[T]) back() *T { return r.at(r.n - 1) }

func (r *ring[T]) push(v T) {
	if r.n == len(r.buf) {
		bigger := make([]T, max(8, 2*len(r.buf)))
		for i := range r.n {
			bigger[i] = *r.at(i)
		}
		r.buf, r.head = bigger, 0
	}
	r.n++
	*r.back() = v
}

// popFront and popBack clear the removed element, so that it keeps nothing alive.
func (r *ring[T]) popFront() {
	var zero T
	*r.front() = zero
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
}

func (r *ring[T]) popBack() {
	var zero T
	*r.back() = zero
	r.n--
}
