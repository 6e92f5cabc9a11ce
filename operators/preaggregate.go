package operators

import (
	"fmt"
	"reflect"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// PaneStream is a keyed flow of partial results, one for each key, pane and commit. CombineWindows
// makes windows of it.
type PaneStream[K comparable, A any] struct {
	n    *node[KV[K, Pane[A]]]
	keys serde.Serde[K]
	win  Windows
	agg  Aggregator[struct{}, A]
}

// sendOptions are MergeItems, MergeAt and Hot; at is a func(*T) bool.
type sendOptions struct {
	items int
	at    any
	hot   bool
}

// MergeItems is an option of PreAggregate: a task emits its partial results after every n items too,
// not only before its commits. It bounds how long an item waits, and how much memory the partial
// results take; the fewer items share one, the more bytes are exchanged. 0: at commits only.
func MergeItems(n int) RouteOption { return func(o *routeOptions) { o.sends.items = n } }

// MergeAt is an option of PreAggregate: a task emits its partial results too after each item that
// point reports true for, such as one that ends a batch of its producer. point must not keep or
// change the item.
func MergeAt[T any](point func(v *T) bool) RouteOption {
	return func(o *routeOptions) { o.sends.at = point }
}

// Hot is an option of PreAggregate: only frequent keys are folded, those with more than 1/1000 of the items since the last
// partial results were emitted. The items of others leave one by one, as partial results of their own, and take no memory. It is
// for streams in which few keys are frequent and many are rare: the hot ones cannot fill one task, and the others cost
// about what they cost behind KeyBy. Results are the same (Trilink §4.3). Keys cannot share clocks (Keys(n)): items of rare ones
// overtake partial results.
func Hot() RouteOption { return func(o *routeOptions) { o.sends.hot = true } }

// PreAggregate is KeyBy followed by windows, with the first half of the folding done before the
// repartition: instead of items it sends one partial result for each key, pane and commit. It is
// worthwhile if many items of a commit share a key, and it prevents that a single hot key (the one
// window of a global maximum) is all of one task's work. The partial results are in memory between
// two commits and are not state: they are emitted before each commit, in the order of their panes.
// MergeItems and MergeAt emit them sooner; with Hot those of rare keys are emitted at once (Trilink §4.3, Local Merge).
func PreAggregate[T any, K comparable, A any](in Flow[T], name string, keys serde.Serde[K], key func(v *T) K, win Windows, agg Aggregator[T, A], opts ...RouteOption) PaneStream[K, A] {
	n := in.flow()
	j := n.job
	what := fmt.Sprintf("pre-aggregation %q", name)
	keys = item.Keys(keys, "pre-aggregation", name, j.errorf)
	agg.check(j, what, n.sd, true)
	win.check(j, what)
	var sd serde.Serde[KV[K, Pane[A]]]
	if agg.Acc != nil {
		sd = item.KVSerde(keys, item.PaneSerde(agg.Acc))
	}
	o := route(opts)
	o.keyed = true
	by := routedBy[K](j, name, &o)
	o.hashed = by == nil
	opID := j.nextID()
	sends := fold.Sends[T]{Items: o.sends.items, Hot: o.sends.hot}
	if o.sends.at != nil {
		at, ok := o.sends.at.(func(*T) bool)
		if !ok {
			j.errorf("%s: MergeAt has a %s for items that are %s", what, reflect.TypeOf(o.sends.at), item.TypeName[T]())
		}
		sends.At = at
	}
	if o.sends.items < 0 {
		j.errorf("%s: MergeItems(%d) is negative", what, o.sends.items)
	}
	if o.sends.hot && o.grain.Kind == exec.GrainKeys { // a rare key would move the clock past what is held of a frequent one
		j.errorf("%s: with Hot keys cannot share clocks; use WatermarkPer(Key, delay)", what)
	}
	o.sends = sendOptions{}
	out := link(n, name, sd, o, func(c *chain.Chain, stream int) chain.Emit[T] {
		w := chain.NewKeyedWriter(c, stream, name, item.PaneSerde(agg.Acc), keys, by)
		return fold.PreAggregate(c, opID, w, keys, key, win.cut, agg.Add, fold.Cloner(agg.Keeps, n.sd), sends)
	})
	out.measure = chain.Measuring[K, Pane[A]](out.grain, func() func(*K) uint64 { return state.Hasher(keys) })
	return PaneStream[K, A]{n: out, keys: keys, win: win, agg: Aggregator[struct{}, A]{Merge: agg.Merge, Acc: agg.Acc, Keeps: agg.Keeps}}
}

// CombineWindows folds the partial results of PreAggregate into those of the windows. Options and
// results are those of AggregateWindows; a partial result that comes too late counts as one late
// item.
func CombineWindows[K comparable, A any](in PaneStream[K, A], opts ...WindowOption) KeyedStream[K, Windowed[A]] {
	what := fmt.Sprintf("%v windows of %q", in.win, in.n.stage.find().name)
	return windowStage(in.n, in.keys, serde.Serde[Pane[A]](item.PaneSerde(in.agg.Acc)), in.win, in.agg, in.agg.Acc, what, opts, same[K, A], func(c *chain.Chain, w *fold.Windows[K, A], lates *chain.Buffer[KV[K, Pane[A]]]) chain.Emit[KV[K, Pane[A]]] {
		return fold.Partials(w, in.agg.Merge, fold.Cloner(in.agg.Keeps, in.agg.Acc), lates)
	})
}
