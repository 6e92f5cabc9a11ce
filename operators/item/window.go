package item

import "tailrace.dev/tailrace/operators/serde"

// Windowed is a result of a window: its bounds in ms, end exclusive, and the
// value. Its event time is End − 1.
type Windowed[A any] struct {
	Start, End int64
	Value      A
}

type windowedSerde[A any] struct{ of serde.Serde[A] }

// ValueSerde returns the serde of the values of a WindowedSerde, nil if sd is another one.
func ValueSerde[A any](sd serde.Serde[Windowed[A]]) serde.Serde[A] {
	if w, ok := sd.(windowedSerde[A]); ok {
		return w.of
	}
	return nil
}

// WindowedSerde returns the serde of a window's result.
func WindowedSerde[A any](of serde.Serde[A]) serde.Serde[Windowed[A]] { return windowedSerde[A]{of} }

func (s windowedSerde[A]) Name() string { return "windowed " + serde.NameOf(s.of) }

func (s windowedSerde[A]) Append(dst []byte, v *Windowed[A]) []byte {
	dst = serde.AppendInt64(dst, v.End)
	dst = serde.AppendInt64(dst, v.End-v.Start)
	return s.of.Append(dst, &v.Value)
}

func (s windowedSerde[A]) Decode(src []byte, v *Windowed[A]) (int, error) {
	end, n := serde.Zigzag(src)
	if n <= 0 {
		return 0, serde.ErrMalformed
	}
	size, m := serde.Zigzag(src[n:])
	if m <= 0 {
		return 0, serde.ErrMalformed
	}
	v.Start, v.End = end-size, end
	k, err := s.of.Decode(src[n+m:], &v.Value)
	return n + m + k, err
}

// Pane is a partial result: what one task has folded, since its last commit, of the items of a key
// in the pane that ends at End. Its event time is that of the newest item in it.
type Pane[A any] struct {
	End int64
	Acc A
}

// PaneSerde returns the serde of a partial result.
func PaneSerde[A any](of serde.Serde[A]) serde.Serde[Pane[A]] { return paneSerde[A]{of} }

type paneSerde[A any] struct{ of serde.Serde[A] }

func (s paneSerde[A]) Name() string { return "pane of " + serde.NameOf(s.of) }

func (s paneSerde[A]) Append(dst []byte, v *Pane[A]) []byte {
	return s.of.Append(serde.AppendInt64(dst, v.End), &v.Acc)
}

func (s paneSerde[A]) Decode(src []byte, v *Pane[A]) (int, error) {
	end, n := serde.Zigzag(src)
	if n <= 0 {
		return 0, serde.ErrMalformed
	}
	v.End = end
	m, err := s.of.Decode(src[n:], &v.Acc)
	return n + m, err
}

// Counted is a result of AggregateEvery: First is the number of its first item among the key's
// items, counted from 0.
type Counted[A any] struct {
	First int64
	Value A
}

// CountedSerde returns the serde of a result of AggregateEvery.
func CountedSerde[A any](of serde.Serde[A]) serde.Serde[Counted[A]] {
	return serde.New("counted "+serde.NameOf(of),
		func(dst []byte, v *Counted[A]) []byte { return of.Append(serde.AppendInt64(dst, v.First), &v.Value) },
		func(r *serde.Reader, v *Counted[A]) {
			v.First = r.Int64()
			serde.Take(r, of, &v.Value)
		})
}
