package item

import (
	"fmt"

	"tailrace.dev/tailrace/operators/serde"
)

// Kind says what an Update does to the value of a key.
type Kind uint8

// The kinds of updates.
const (
	// Insert: the key had no value and has this one.
	Insert Kind = iota
	// UpdateBefore: the key had this value and has another one, which follows at once.
	UpdateBefore
	// UpdateAfter: the key has this value instead.
	UpdateAfter
	// Delete: the key had this value and has none.
	Delete
)

// Adds reports whether the value holds from now on; otherwise it no longer holds. A sum of values
// adds the former and subtracts the latter.
func (k Kind) Adds() bool { return k == Insert || k == UpdateAfter }

// String returns +I, -U, +U or -D.
func (k Kind) String() string {
	if k > Delete {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return [...]string{"+I", "-U", "+U", "-D"}[k]
}

// Update is a change of one key's value, with its kind.
type Update[V any] struct {
	Kind  Kind
	Value V
}

// UpdateSerde encodes updates: the kind as a byte, and the value.
func UpdateSerde[V any](vals serde.Serde[V]) serde.Serde[Update[V]] {
	return updateSerde[V]{vals}
}

type updateSerde[V any] struct{ vals serde.Serde[V] }

func (s updateSerde[V]) Name() string { return "update of " + serde.NameOf(s.vals) }

func (s updateSerde[V]) Append(dst []byte, u *Update[V]) []byte {
	return s.vals.Append(append(dst, byte(u.Kind)), &u.Value)
}

func (s updateSerde[V]) Decode(src []byte, u *Update[V]) (int, error) {
	if len(src) == 0 {
		return 0, serde.ErrShort
	}
	if u.Kind = Kind(src[0]); u.Kind > Delete {
		return 0, serde.ErrMalformed
	}
	n, err := s.vals.Decode(src[1:], &u.Value)
	return 1 + n, err
}
