package join

import (
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/serde"
)

// since is a value and the time from which on it holds.
type since[V any] struct {
	time  int64
	value V
}

func sinceSerde[V any](vals serde.Serde[V]) serde.Serde[since[V]] {
	return serde.New("since of "+serde.NameOf(vals),
		func(dst []byte, v *since[V]) []byte {
			return vals.Append(serde.AppendInt64(dst, v.time), &v.value)
		},
		func(r *serde.Reader, v *since[V]) {
			v.time = r.Int64()
			serde.Take(r, vals, &v.value)
		})
}

// Side is the value of one side of a join of tables for the current key: the latest one, or one
// with its time.
type Side[K comparable, Out, V any] struct {
	latest *process.Value[K, Out, V]
	timed  *process.Value[K, Out, since[V]]
}

// NewSide returns the state of a side.
func NewSide[V any, K comparable, Out any](c *process.Call[K, Out], name string, vals serde.Serde[V], latest bool) Side[K, Out, V] {
	if latest {
		return Side[K, Out, V]{latest: process.NewValue(c, name, vals)}
	}
	return Side[K, Out, V]{timed: process.NewValue(c, name, sinceSerde(vals))}
}

// Get returns the value, nil if there is none.
func (s Side[K, Out, V]) Get() *V {
	if s.latest != nil {
		return s.latest.Get()
	}
	if x := s.timed.Get(); x != nil {
		return &x.value
	}
	return nil
}

// Hold makes a version of time t the value.
func (s Side[K, Out, V]) Hold(v *Version[V], t int64) {
	switch {
	case s.latest != nil:
		Hold(s.latest, v)
	case v.Deleted:
		s.timed.Delete()
	default:
		s.timed.Put(&since[V]{t, v.Value})
	}
}

// NewerThan reports whether the value holds since a time after t.
func (s Side[K, Out, V]) NewerThan(t int64) bool {
	x := s.timed.Get()
	return x != nil && x.time > t
}

// Hold makes a version the value of the current key.
func Hold[K comparable, Out, V any](in *process.Value[K, Out, V], v *Version[V]) {
	if v.Deleted {
		in.Delete()
	} else {
		in.Put(&v.Value)
	}
}
