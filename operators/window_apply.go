package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/item"
)

// ApplyWindows calls f for each key and window with all items of it, in the order of their times, and of their
// arrival. It is for results that are no fold: a median, a pattern, a list. Where an accumulator does,
// AggregateWindows keeps less. Options, times of results and what is late are as there; a window that late
// items, or Eager, give several results is computed as often.
//
// The items are state, of which each is logged once: a window of ten thousand is not written whole at each
// commit, as an accumulator is that is a slice. Overlapping windows share them.
//
// f must not change or keep the items, which are valid until it returns; what it returns may alias what is
// in them. An item of time t is in items with Elem.Time t.
//
//	medians := operators.ApplyWindows(readings, operators.Tumbling(time.Minute), func(sensor *int64, items []operators.Elem[reading]) int64 { … })
func ApplyWindows[K comparable, T, R any](in KeyedStream[K, T], win Windows, f func(key *K, items []Elem[T]) R, opts ...WindowOption) KeyedStream[K, Windowed[R]] {
	j := in.n.job
	what := fmt.Sprintf("%v windows of %q", win, in.n.stage.find().name)
	if f == nil {
		j.errorf("%s: ApplyWindows has no function", what)
	}
	if in.vals == nil {
		j.errorf("%s: items are kept and have no serde; give one with With", what)
	}
	counts := Aggregator[T, fold.Applied[R]]{Merge: fold.CountApplied[R], Acc: fold.AppliedSerde[R]()}
	return windowStage(in.n, in.keys, in.vals, win, counts, item.Default[R](nil), what, opts, fold.Values[K, R], func(_ *chain.Chain, w *fold.Windows[K, fold.Applied[R]], lates *chain.Buffer[KV[K, T]]) chain.Emit[KV[K, T]] {
		return fold.Apply(w, in.vals, f, lates)
	})
}
