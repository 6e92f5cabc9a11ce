package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// AggregateLast folds the last size items of a key at every slide-th of its items (sliding
// count windows): with 100 and 10 behind the 10th item the first 10, behind the 20th the
// first 20, and from the 100th on always 100. A result's time is that of the newest of its
// items. Merge is needed: state is an accumulator for each gcd(size, slide) items.
//
// Which items are together depends on the order in which they come; InOrder is as in
// AggregateEvery.
func AggregateLast[K comparable, T, A any](in KeyedStream[K, T], name string, size, slide int, agg Aggregator[T, A], opts ...Option) KeyedStream[K, Counted[A]] {
	j := in.n.job
	what := fmt.Sprintf("sliding count windows %q", name)
	agg.check(j, what, in.vals, true)
	if size < 1 || slide < 1 {
		j.errorf("%s: of %d items every %d", what, size, slide)
		size, slide = 1, 1
	}
	o := j.options(what, opts, "InOrder")
	j.claim("process function", name)
	out := processOne(in, j.identify(in.n.stage, "process", name), o, func(x *Context[K, Counted[A]]) Handler[T] {
		f := fold.Last[K, T, A]{
			Size: int64(size), Slide: int64(slide), Add: agg.Add, Merge: agg.Merge,
			Clone: fold.Cloner(agg.Keeps, in.vals), Plain: serde.Plain(agg.Acc),
		}
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
