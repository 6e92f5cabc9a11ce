package fold

import (
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// Every folds every N items of a key into a result.
type Every[K comparable, T, A any] struct {
	N     int64
	Add   func(acc *A, v *T, time int64)
	Clone func(*T) (*T, error)

	c      *process.Call[K, item.Counted[A]]
	window *process.Value[K, item.Counted[A], countWindow[A]]
}

// Start makes the state; acc may be nil while the plan is made.
func (e *Every[K, T, A]) Start(c *process.Call[K, item.Counted[A]], acc serde.Serde[A]) {
	var sd serde.Serde[countWindow[A]]
	if acc != nil {
		sd = countWindowSerde(acc)
	}
	e.c, e.window = c, process.NewValue(c, "window", sd)
}

// Item adds an item, and emits the window that it completes.
func (e *Every[K, T, A]) Item(v *T) {
	c := e.c
	if e.Clone != nil {
		own, err := e.Clone(v)
		if err != nil {
			c.Fail(err)
			return
		}
		v = own
	}
	x := e.window.Upsert()
	if x.n%e.N == 0 {
		var zero A
		x.acc, x.time = zero, c.Time
	}
	e.Add(&x.acc, v, c.Time)
	x.n, x.time = x.n+1, max(x.time, c.Time)
	if x.n%e.N == 0 {
		c.Emit(item.Counted[A]{First: x.n - e.N, Value: x.acc}, x.time)
	}
}

// countWindow is the window being filled: it has n items of the key so far, and time is that of the
// newest.
type countWindow[A any] struct {
	n, time int64
	acc     A
}

func countWindowSerde[A any](acc serde.Serde[A]) serde.Serde[countWindow[A]] {
	return serde.New("count window of "+serde.NameOf(acc),
		func(dst []byte, v *countWindow[A]) []byte {
			return acc.Append(serde.AppendInt64(serde.AppendInt64(dst, v.n), v.time), &v.acc)
		},
		func(r *serde.Reader, v *countWindow[A]) {
			v.n, v.time = r.Int64(), r.Int64()
			serde.Take(r, acc, &v.acc)
		})
}
