package serde

import "fmt"

// Tuple is two values; Pair is its serde. It is useful for compound keys.
type Tuple[A, B any] struct {
	First  A
	Second B
}

type pairSerde[A, B any] struct {
	a Serde[A]
	b Serde[B]
}

// Pair returns the serde of a Tuple: first, then second.
func Pair[A, B any](a Serde[A], b Serde[B]) Serde[Tuple[A, B]] {
	return &pairSerde[A, B]{a: a, b: b}
}

func (s *pairSerde[A, B]) Name() string {
	return fmt.Sprintf("(%s, %s)", NameOf(s.a), NameOf(s.b))
}

func (s *pairSerde[A, B]) Append(dst []byte, v *Tuple[A, B]) []byte {
	return s.b.Append(s.a.Append(dst, &v.First), &v.Second)
}

func (s *pairSerde[A, B]) Decode(src []byte, v *Tuple[A, B]) (int, error) {
	n, err := s.a.Decode(src, &v.First)
	if err != nil {
		return 0, fmt.Errorf("first: %w", err)
	}
	m, err := s.b.Decode(src[n:], &v.Second)
	if err != nil {
		return 0, fmt.Errorf("second: %w", err)
	}
	return n + m, nil
}

type sliceSerde[T any] struct{ of Serde[T] }

// Slice returns the serde of a slice of what `of` encodes. nil and empty are
// one value; it decodes to nil. Decode makes a new slice.
func Slice[T any](of Serde[T]) Serde[[]T] { return &sliceSerde[T]{of: of} }

func (s *sliceSerde[T]) Name() string { return "[]" + NameOf(s.of) }

func (s *sliceSerde[T]) Append(dst []byte, v *[]T) []byte {
	dst = AppendUint64(dst, uint64(len(*v)))
	for i := range *v {
		dst = s.of.Append(dst, &(*v)[i])
	}
	return dst
}

func (s *sliceSerde[T]) Decode(src []byte, v *[]T) (int, error) {
	r := Reader{src: src}
	// Elements of a Unit slice have no bytes; such a slice is limited to as many elements as there
	// are bytes behind its count.
	n := r.Count(1)
	if r.err != nil {
		return 0, r.err
	}
	*v = nil
	if n > 0 {
		*v = make([]T, n)
	}
	pos := r.pos
	for i := range *v {
		m, err := s.of.Decode(src[pos:], &(*v)[i])
		if err != nil {
			return 0, fmt.Errorf("element %d: %w", i, err)
		}
		pos += m
	}
	return pos, nil
}
