package operators

import "tailrace.dev/tailrace/operators/serde"

// GroupTable sends the updates of a table, through the stream of this name, to where the
// groups are that its entries belong to: a new value to its group, and what it replaces to
// the group where that has been. AggregateUpdates makes a table of the groups. group must
// depend on nothing but the key and the value.
func GroupTable[K, G comparable, V any](in Table[K, V], name string, groups serde.Serde[G], group func(key *K, v *V) G, opts ...RouteOption) KeyedStream[G, Update[V]] {
	updates := Updates(in, name+"-updates")
	var sd serde.Serde[KV[G, Update[V]]]
	if updates.vals != nil {
		sd = kvSerde[G, Update[V]]{groups, updates.vals}
	}
	out := link(updates.n, name, sd, route(opts), func(c *chain, stream int) emit[KV[K, Update[V]]] {
		w := writer[Update[V]]{name: name, out: c.output(stream), sd: updates.vals, show: shower(groups)}
		n := c.outputGroups(stream)
		var enc []byte
		var g G
		return func(b *Batch[KV[K, Update[V]]]) error {
			for i := range b.Items {
				kv := &b.Items[i]
				g = group(&kv.Key, &kv.Value.Value)
				enc = groups.Append(enc[:0], &g)
				if err := w.putKeyed(GroupOf(HashKey(enc), n), enc, &kv.Value, b.Times[i]); err != nil {
					return err
				}
			}
			return nil
		}
	})
	return KeyedStream[G, Update[V]]{n: out, keys: groups, vals: updates.vals}
}
