package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// AggregateWindows folds the items of each key and window. A window without
// items gives no result. Results keep the key; their time is the window's end
// − 1 (or, for one emitted later, the watermark).
//
// With Final, a result comes when the watermark reaches the window's end, and
// again after late items within the Lateness: once a commit, or with EachLate after each. With Eager it comes once a commit
// when it has changed, at the time of the newest item, and not again at the end.
// A later result of a window replaces those before it: WindowUpdates marks them so.
// An item all of whose windows are closed is late: counted and dropped, or in the stream
// that Late returns.
func AggregateWindows[K comparable, T, A any](in KeyedStream[K, T], win Windows, agg Aggregator[T, A], opts ...WindowOption) KeyedStream[K, Windowed[A]] {
	j := in.n.job
	what := fmt.Sprintf("%v windows of %q", win, in.n.stage.find().name)
	agg.check(j, what, in.vals, win.cut.Pane != win.cut.Size)
	return windowStage(in.n, in.keys, in.vals, win, agg, agg.Acc, what, opts, same[K, A], func(c *chain.Chain, w *fold.Windows[K, A], lates *chain.Buffer[KV[K, T]]) chain.Emit[KV[K, T]] {
		return fold.Items(w, agg.Add, fold.Cloner(agg.Keeps, in.vals), lates)
	})
}

// CountWindows counts the items of each key and window.
func CountWindows[K comparable, T any](in KeyedStream[K, T], win Windows, opts ...WindowOption) KeyedStream[K, Windowed[int64]] {
	return AggregateWindows(in, win, Counting[T](), opts...)
}

func same[K comparable, A any](next chain.Emit[KV[K, Windowed[A]]]) chain.Emit[KV[K, Windowed[A]]] {
	return next
}

// windowStage builds the operator that keeps panes; what comes in (items
// or partial results) is receive's matter, and what goes out, of a serde or nil, result's.
func windowStage[K comparable, I, T, A, R any](in *node[KV[K, I]], keys serde.Serde[K], vals serde.Serde[I], win Windows, agg Aggregator[T, A], results serde.Serde[R], what string, opts []WindowOption,
	result func(next chain.Emit[KV[K, Windowed[R]]]) chain.Emit[KV[K, Windowed[A]]],
	receive func(c *chain.Chain, w *fold.Windows[K, A], lates *chain.Buffer[KV[K, I]]) chain.Emit[KV[K, I]],
) KeyedStream[K, Windowed[R]] {
	j := in.job
	win.check(j, what)
	o := windowed(j, what, opts)
	var sd serde.Serde[Windowed[R]]
	if results != nil {
		sd = item.WindowedSerde(results)
	}
	out := newNode[KV[K, Windowed[R]]](j, in.stage, nil)
	out.op, out.origin = j.identify(in.stage, "window", ""), in.behind()
	out.op.results = &windowResults{lateness: o.lateness, once: o.emission == Final && o.lateness == 0}
	if o.emission == Eager {
		out.varies = what + " are Eager"
	}
	lates := addLate(out, in, keys, vals)
	in.subs = append(in.subs, func(c *chain.Chain) chain.Emit[KV[K, I]] {
		w := fold.NewWindows(c, out.id, keys, fold.Config[A]{
			Name: out.op.name, Text: win.String(), Cut: win.cut, Eager: o.emission == Eager, Lateness: o.lateness, EachLate: o.eachLate, Clocks: in.clocks(c),
			Acc: agg.Acc, Merge: agg.Merge,
		}, result(out.emitter(c)))
		buf := lateBuffer(c, lates)
		next := receive(c, w, buf)
		if buf == nil {
			return next
		}
		return func(b *Batch[KV[K, I]]) error {
			if err := next(b); err != nil {
				return err
			}
			return buf.Flush()
		}
	})
	return keyed(out, keys, sd)
}
