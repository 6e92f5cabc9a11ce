package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// PaneStream is a keyed flow of partial results, one for each key, pane and commit. CombineWindows
// makes windows of it.
type PaneStream[K comparable, A any] struct {
	n    *node[KV[K, Pane[A]]]
	keys serde.Serde[K]
	win  Windows
	agg  Aggregator[struct{}, A]
}

// PreAggregate is KeyBy followed by windows, with the first half of the folding done before the
// repartition: instead of items it sends one partial result for each key, pane and commit. It is
// worthwhile if many items of a commit share a key, and it prevents that a single hot key (the one
// window of a global maximum) is all of one task's work. The partial results are in memory between
// two commits and are not state: they are emitted before each commit.
func PreAggregate[T any, K comparable, A any](in Flow[T], name string, keys serde.Serde[K], key func(v *T) K, win Windows, agg Aggregator[T, A], opts ...RouteOption) PaneStream[K, A] {
	n := in.flow()
	j := n.job
	what := fmt.Sprintf("pre-aggregation %q", name)
	agg.check(j, what, true)
	win.check(j, what)
	if agg.Keeps && n.sd == nil {
		j.errorf("%s: items are kept and have no serde; give one with With", what)
	}
	var sd serde.Serde[KV[K, Pane[A]]]
	if agg.Acc != nil {
		sd = item.KVSerde(keys, item.PaneSerde(agg.Acc))
	}
	o := route(opts)
	o.keyed = true
	opID := j.nextID()
	out := link(n, name, sd, o, func(c *chain.Chain, stream int) chain.Emit[T] {
		w := chain.NewKeyedWriter(c, stream, name, item.PaneSerde(agg.Acc), keys)
		return fold.PreAggregate(c, opID, w, keys, key, win.cut, agg.Add, fold.Cloner(agg.Keeps, n.sd))
	})
	return PaneStream[K, A]{n: out, keys: keys, win: win, agg: Aggregator[struct{}, A]{Merge: agg.Merge, Acc: agg.Acc, Keeps: agg.Keeps}}
}

// CombineWindows folds the partial results of PreAggregate into those of the windows. Options and
// results are those of AggregateWindows; a partial result that comes too late counts as one late
// item.
func CombineWindows[K comparable, A any](in PaneStream[K, A], opts ...WindowOption) KeyedStream[K, Windowed[A]] {
	what := fmt.Sprintf("%v windows of %q", in.win, in.n.stage.find().name)
	return windowStage(in.n, in.keys, serde.Serde[Pane[A]](item.PaneSerde(in.agg.Acc)), in.win, in.agg, what, opts, func(c *chain.Chain, w *fold.Windows[K, A], lates *chain.Buffer[KV[K, Pane[A]]]) chain.Emit[KV[K, Pane[A]]] {
		return fold.Partials(w, in.agg.Merge, fold.Cloner(in.agg.Keeps, in.agg.Acc), lates)
	})
}
