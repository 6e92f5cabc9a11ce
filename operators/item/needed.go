package item

import (
	"fmt"

	"tailrace.dev/tailrace/operators/serde"
)

// Default returns sd; if there is none, the one that its type has by default, which may be none either.
func Default[T any](sd serde.Serde[T]) serde.Serde[T] {
	if sd == nil {
		sd, _ = serde.Default[T]()
	}
	return sd
}

// Keys returns keys. If there are none, it reports what, such as a stream, has keys without serde, and returns some with which the plan
// can be completed, so that it has all errors of the job.
func Keys[K any](keys serde.Serde[K], what, name string, report func(format string, args ...any)) serde.Serde[K] {
	if keys != nil {
		return keys
	}
	report("%s %q: its keys (%s) have no serde; give one of package serde", what, name, TypeName[K]())
	return serde.JSON[K]()
}

// State is Keys for the values of state of an operator.
func State[V any](values serde.Serde[V], operator, name string, report func(error)) serde.Serde[V] {
	if values != nil {
		return values
	}
	report(fmt.Errorf("%q, state %q: %s has no serde; give one of package serde", operator, name, TypeName[V]()))
	return serde.JSON[V]()
}
