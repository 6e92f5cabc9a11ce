package operators

import (
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// KeyBy repartitions a flow: each item goes, through the stream of this name, to the task that owns
// the key group of its key. Operators put on the result run in that stage and may keep state per
// key. key must not keep the item; the key may alias it.
func KeyBy[T any, K comparable](in Flow[T], name string, keys serde.Serde[K], key func(v *T) K, opts ...RouteOption) KeyedStream[K, T] {
	n := in.flow()
	keys = item.Keys(keys, "stream", name, n.job.errorf)
	var sd serde.Serde[KV[K, T]]
	if n.sd != nil {
		sd = item.KVSerde(keys, n.sd)
	}
	o := route(opts)
	o.keyed = true
	by := routedBy[K](n.job, name, &o)
	o.hashed = by == nil
	out := link(n, name, sd, o, func(c *chain.Chain, stream int) chain.Emit[T] {
		w := chain.NewKeyedWriter(c, stream, name, n.sd, keys, by)
		var k K // outside: in the loop it would escape, an allocation an item
		return func(b *Batch[T]) error {
			for i := range b.Items {
				k = key(&b.Items[i])
				if err := w.Send(&k, &b.Items[i], b.Times[i]); err != nil {
					return err
				}
			}
			return nil
		}
	})
	out.measure = chain.Measuring[K, T](out.grain, func() func(*K) uint64 { return state.Hasher(keys) })
	return KeyedStream[K, T]{n: out, keys: keys, vals: n.sd}
}

// Rebalance moves a flow to a new stage without a key, for more or fewer tasks or to bring streams
// of different stages together. Each task writes to one key group between two commits and to the
// next one after, so that consumers get equal shares.
func Rebalance[T any](in Flow[T], name string, opts ...RouteOption) Stream[T] {
	n := in.flow()
	out := link(n, name, n.sd, route(opts), func(c *chain.Chain, stream int) chain.Emit[T] {
		w := chain.NewSpreader(c, chain.NewWriter(c, stream, name, n.sd))
		c.Add(n.id, w)
		return w.Write
	})
	out.overtakes = name
	return Stream[T]{out}
}
