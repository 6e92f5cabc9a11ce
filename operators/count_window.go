package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/serde"
)

// Counted is a result of AggregateEvery: First is the number of its first item among the key's
// items, counted from 0.
type Counted[A any] struct {
	First int64
	Value A
}

// AggregateEvery folds every n items of a key into a result: the first n, the next n, and so
// on (count windows). Its time is that of the newest of them. Items that are less than n when
// the input ends give no result.
//
// AggregateLast has windows that overlap.
//
// Which items are together depends on the order in which they come. With InOrder that is the
// order of their times, and the results are a function of the items and their times; an item
// behind the watermark is late then: counted and dropped.
func AggregateEvery[K comparable, T, A any](in KeyedStream[K, T], name string, n int, agg Aggregator[T, A], opts ...Option) KeyedStream[K, Counted[A]] {
	j := in.n.job
	what := fmt.Sprintf("count windows %q", name)
	agg.check(j, what, false)
	if n < 1 {
		j.errorf("%s: of %d items", what, n)
	}
	if agg.Keeps && in.vals == nil {
		j.errorf("%s: items are kept and have no serde; give one with With", what)
	}
	o := j.options(what, opts, "InOrder")
	j.claim("process function", name)
	out := process(in, j.identify(in.n.stage, "process", name), o, func(c *Context[K, Counted[A]]) Handler[T] {
		var sd serde.Serde[countWindow[A]]
		if agg.Acc != nil {
			sd = countWindowSerde(agg.Acc)
		}
		window := NewValue(c, "window", sd)
		clone := cloner(agg.Keeps, in.vals)
		return Handler[T]{Item: func(v *T) {
			if clone != nil {
				own, err := clone(v)
				if err != nil {
					c.fail(err)
					return
				}
				v = own
			}
			x := window.Upsert()
			if x.n%int64(n) == 0 {
				var zero A
				x.acc, x.time = zero, c.time
			}
			agg.Add(&x.acc, v, c.time)
			x.n, x.time = x.n+1, max(x.time, c.time)
			if x.n%int64(n) == 0 {
				c.Emit(Counted[A]{First: x.n - int64(n), Value: x.acc}, x.time)
			}
		}}
	})
	if !o.inOrder {
		out.n.varies = what + " take items as they come"
	}
	if agg.Acc != nil {
		out = out.With(CountedSerde(agg.Acc))
	}
	return out
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
