package fold

import "tailrace.dev/tailrace/operators/serde"

// Reduced is the accumulator of a reduction: nothing yet, or a value.
type Reduced[T any] struct {
	some  bool
	Value T
}

// Add folds a value with f; the first value is the start.
func (r *Reduced[T]) Add(v *T, f func(acc, v *T)) {
	if !r.some {
		r.some, r.Value = true, *v
		return
	}
	f(&r.Value, v)
}

// Merge folds another accumulator with f.
func (r *Reduced[T]) Merge(other *Reduced[T], f func(acc, v *T)) {
	if other.some {
		r.Add(&other.Value, f)
	}
}

// ReducedSerde encodes accumulators of values that sd encodes.
func ReducedSerde[T any](sd serde.Serde[T]) serde.Serde[Reduced[T]] {
	return serde.New("reduced "+serde.NameOf(sd),
		func(dst []byte, r *Reduced[T]) []byte {
			dst = serde.AppendBool(dst, r.some)
			if r.some {
				dst = sd.Append(dst, &r.Value)
			}
			return dst
		},
		func(r *serde.Reader, v *Reduced[T]) {
			*v = Reduced[T]{some: r.Bool()}
			if v.some {
				serde.Take(r, sd, &v.Value)
			}
		})
}

// Members is the aggregate of the values that a key has, and their number.
type Members[A any] struct {
	N   int64
	Acc A
}

// MembersSerde encodes members whose aggregate acc encodes.
func MembersSerde[A any](acc serde.Serde[A]) serde.Serde[Members[A]] {
	return serde.New("members of "+serde.NameOf(acc),
		func(dst []byte, m *Members[A]) []byte {
			return acc.Append(serde.AppendInt64(dst, m.N), &m.Acc)
		},
		func(r *serde.Reader, m *Members[A]) {
			m.N = r.Int64()
			serde.Take(r, acc, &m.Acc)
		})
}
