package serde

import (
	"encoding/json"
	"fmt"
)

type jsonSerde[T any] struct{ name string }

// JSON returns a serde that writes T as encoding/json does. It suits data that other programs read,
// and first versions; it uses reflection and allocates.
//
// As a key's serde it needs a type whose JSON is canonical (no maps with interface values). Append
// panics on a value that encoding/json refuses (a channel, a cycle, NaN): that is a bug of the
// program, and continuing would lose the value.
func JSON[T any]() Serde[T] {
	var v *T
	return &jsonSerde[T]{name: "json(" + fmt.Sprintf("%T", v)[1:] + ")"}
}

func (s *jsonSerde[T]) Name() string { return s.name }

func (s *jsonSerde[T]) Append(dst []byte, v *T) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("serde: %s: %v", s.name, err))
	}
	return AppendBytes(dst, b)
}

func (s *jsonSerde[T]) Decode(src []byte, v *T) (int, error) {
	r := Reader{src: src}
	b := r.Bytes()
	if r.err != nil {
		return 0, r.err
	}
	var fresh T // Unmarshal merges into existing contents
	if err := json.Unmarshal(b, &fresh); err != nil {
		return 0, fmt.Errorf("%s: %w: %w", s.name, ErrMalformed, err)
	}
	*v = fresh
	return r.pos, nil
}
