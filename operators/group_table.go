package operators

import "tailrace.dev/tailrace/operators/serde"

// GroupTable sends the updates of a table, through the stream of this name, to where the
// groups are that its entries belong to: a new value to its group, and what it replaces to
// the group where that has been. AggregateUpdates makes a table of the groups. group must
// depend on nothing but the key and the value.
func GroupTable[K, G comparable, V any](in Table[K, V], name string, groups serde.Serde[G], group func(key *K, v *V) G, opts ...RouteOption) KeyedStream[G, Update[V]] {
	return GroupUpdates(Updates(in, name+"-updates"), name, groups, group, opts...)
}

// GroupUpdates is GroupTable of a stream of updates: it sends each, through the stream of
// this name, to the group that its value belongs to.
func GroupUpdates[K, G comparable, V any](in KeyedStream[K, Update[V]], name string, groups serde.Serde[G], group func(key *K, v *V) G, opts ...RouteOption) KeyedStream[G, Update[V]] {
	return rekey(in.n, name, groups, in.vals, route(opts), func(kv *KV[K, Update[V]], g *G) *Update[V] {
		*g = group(&kv.Key, &kv.Value.Value)
		return &kv.Value
	})
}
