package fold

import "tailrace.dev/tailrace/operators/serde"

// Cloner returns the function that makes items safe to keep: nil if they need no copy.
func Cloner[T any](keeps bool, sd serde.Serde[T]) func(v *T) (*T, error) {
	if !keeps || sd == nil || serde.Plain(sd) {
		return nil
	}
	var c T
	return func(v *T) (*T, error) {
		var zero T
		c = zero // what it held belongs to an accumulator by now
		return &c, serde.CloneInto(sd, &c, v)
	}
}
