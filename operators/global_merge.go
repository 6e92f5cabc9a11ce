package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// GlobalMerge folds all items of each key, for ever, into a table, as Aggregate behind KeyBy does,
// but it exchanges changes instead of items (Trilink §4.3, Global Merge). The stage of the flow folds
// the items of a key apart in each of its key groups (behind a source: its partitions). At its
// commits it sends, through the stream of this name, what a group has of a key whose value has
// changed. The stage behind the stream merges what all groups have, and emits a key's value once a
// commit.
//
// changed decides whether a change of what a group has is worth sending: it gets what was sent last
// and what there is now, and must not keep or change them. A group's first value of a key is always
// sent. What changed holds back is missing in the table until a later change is sent, or until the
// input of the job has ended: then all of it is sent, so that the last value of each key is exact. A
// savepoint is no end; what is held back is part of it. nil: every change is sent, at most once a commit.
//
// The aggregator needs Merge, and the order of a key's items must not matter to it. Use
// Aggregate behind KeyBy if it does, or if few items of a commit share a key.
func GlobalMerge[T any, K comparable, A any](in Flow[T], name string, keys serde.Serde[K], key func(v *T) K, agg Aggregator[T, A], changed func(old, now *A) bool, opts ...RouteOption) Table[K, A] {
	if d, ok := serde.Default[A](); ok && agg.Acc == nil {
		agg.Acc = d
	}
	all := Aggregate(GlobalParts(in, name, keys, key, agg, changed, opts...), partsOf(agg.Acc))
	return mapTable(all, agg.Acc, func(out *A, parts *[]Part[A]) { fold.MergeParts(out, *parts, agg.Merge) })
}

// GlobalParts is GlobalMerge without the stage that merges: the stream of what each key group has of each key,
// for a sink whose readers merge (package connectors/redis).
func GlobalParts[T any, K comparable, A any](in Flow[T], name string, keys serde.Serde[K], key func(v *T) K, agg Aggregator[T, A], changed func(old, now *A) bool, opts ...RouteOption) KeyedStream[K, Part[A]] {
	n := in.flow()
	j := n.job
	what := fmt.Sprintf("global merge %q", name)
	keys = item.Keys(keys, "global merge", name, j.errorf)
	agg.check(j, what, n.sd, true)
	var sd serde.Serde[KV[K, Part[A]]]
	var parts serde.Serde[Part[A]]
	if agg.Acc != nil {
		parts = fold.PartSerde(agg.Acc)
		sd = item.KVSerde(keys, parts)
	}
	opID, id := j.nextID(), j.identify(n.stage, "merge", name)
	o := route(opts)
	by := routedBy[K](j, name, &o)
	out := link(n, name, sd, o, func(c *chain.Chain, stream int) chain.Emit[T] {
		w := chain.NewKeyedWriter(c, stream, name, parts, keys, by)
		return fold.GlobalMerge(c, opID, id.name, w, keys, agg.Acc, key, agg.Add, fold.Cloner(agg.Keeps, n.sd), changed)
	})
	return KeyedStream[K, Part[A]]{n: out, keys: keys, vals: parts}
}

// partsOf folds the parts of a key into the newest of each group, in the order of the groups.
func partsOf[A any](acc serde.Serde[A]) Aggregator[fold.Part[A], []fold.Part[A]] {
	agg := Aggregator[fold.Part[A], []fold.Part[A]]{Keeps: true, Add: fold.PutPart[A]}
	if acc != nil {
		agg.Acc = serde.Slice(fold.PartSerde(acc))
	}
	return agg
}
