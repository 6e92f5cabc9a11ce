package operators

import "fmt"

// Merge returns the stream of all items of all flows, interleaved as they come. Flows of one stage
// are merged in it. Flows of different stages (two sources) have to meet in a new stage: name names
// the streams that carry them there, one hop through the log. If a KeyBy follows, put the KeyBy
// first and merge with MergeKeyed: that hop is needed anyway.
func Merge[T any](name string, first Flow[T], rest ...Flow[T]) Stream[T] {
	n := first.flow()
	flows := append([]Flow[T]{first}, rest...)
	apart := false
	for _, f := range rest {
		sameJob(n.job, f.flow().job, "merge "+name)
		apart = apart || f.flow().stage.find() != n.stage.find()
	}
	if apart {
		for i, f := range flows {
			flows[i] = Rebalance(f, fmt.Sprintf("%s-%d", name, i))
		}
	}
	return Stream[T]{merge("merge "+name, flows)}
}

// MergeKeyed merges streams keyed alike; the result is keyed, and nothing moves
// between tasks.
func MergeKeyed[K comparable, T any](first KeyedStream[K, T], rest ...KeyedStream[K, T]) KeyedStream[K, T] {
	flows := []Flow[KV[K, T]]{first}
	for _, s := range rest {
		flows = append(flows, s)
		sameKeys(first.n.job, "merge", first.keys, s.keys)
		first.n.job.sameGrain("merge", &first.n.origin, &s.n.origin)
		first.n.job.sameGroups("merge", first.n.stage, s.n.stage)
	}
	return KeyedStream[K, T]{n: merge("merge", flows), keys: first.keys, vals: first.vals}
}

func merge[T any](what string, flows []Flow[T]) *node[T] {
	n := flows[0].flow()
	for _, f := range flows[1:] {
		sameJob(n.job, f.flow().job, what)
		n.job.unite(n.stage, f.flow().stage, what)
	}
	out := newNode(n.job, n.stage, n.sd)
	out.grain = n.grain
	for _, f := range flows {
		out.origin = out.or(f.flow().origin)
		out.stage.find().paths = max(out.stage.find().paths, len(out.paths))
		f.flow().subs = append(f.flow().subs, out.emitter)
	}
	return out
}
