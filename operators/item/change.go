package item

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// Change is a change of a table: the key's value from now on, or, if Deleted,
// that it has none (Value is then zero).
type Change[K, V any] struct {
	Key     K
	Value   V
	Deleted bool
}

// ChangeSerde returns the serde of the changes of a table: key | 0, or 1 and the value.
func ChangeSerde[K, V any](keys serde.Serde[K], vals serde.Serde[V]) serde.Serde[Change[K, V]] {
	return changeSerde[K, V]{keys, vals}
}

type changeSerde[K, V any] struct {
	keys serde.Serde[K]
	vals serde.Serde[V]
}

func (s changeSerde[K, V]) Name() string {
	return "table " + serde.NameOf(s.keys) + " → " + serde.NameOf(s.vals)
}

func (s changeSerde[K, V]) Append(dst []byte, v *Change[K, V]) []byte {
	dst = s.keys.Append(dst, &v.Key)
	if v.Deleted {
		return append(dst, exec.OpDelete)
	}
	return s.vals.Append(append(dst, exec.OpPut), &v.Value)
}

func (s changeSerde[K, V]) Decode(src []byte, v *Change[K, V]) (int, error) {
	n, err := s.keys.Decode(src, &v.Key)
	if err != nil {
		return 0, err
	}
	if n == len(src) {
		return 0, serde.ErrShort
	}
	op := src[n]
	n++
	var zero V
	switch op {
	case exec.OpDelete:
		v.Value, v.Deleted = zero, true
		return n, nil
	case exec.OpPut:
		v.Deleted = false
		m, err := s.vals.Decode(src[n:], &v.Value)
		return n + m, err
	}
	return 0, serde.ErrMalformed
}
