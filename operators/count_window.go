package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/item"
)

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
	agg.check(j, what, in.vals, false)
	if n < 1 {
		j.errorf("%s: of %d items", what, n)
	}
	o := j.options(what, opts, "InOrder")
	o.timeless = !o.inOrder
	j.claim("process function", name)
	out := processOne(in, j.identify(in.n.stage, "process", name), o, func(x *Context[K, Counted[A]]) Handler[T] {
		f := fold.Every[K, T, A]{N: int64(n), Add: agg.Add, Clone: fold.Cloner(agg.Keeps, in.vals)}
		f.Start(&x.call, agg.Acc)
		return Handler[T]{Item: f.Item}
	})
	if !o.inOrder {
		out.n.varies = what + " take items as they come"
	}
	if agg.Acc != nil {
		out = out.With(item.CountedSerde(agg.Acc))
	}
	return out
}
