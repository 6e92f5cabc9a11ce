package operators

import (
	"cmp"

	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// MapState is a handle on any number of values of the current key, each under a key of its own.
// Reading and changing one costs the same as a Value, however many there are.
type MapState[S cmp.Ordered, V any] interface {
	// Get, Update, Upsert, Put and Delete are those of Value, for one key of the map.
	Get(k S) *V
	Update(k S) *V
	Upsert(k S) *V
	Put(k S, v *V)
	Delete(k S)
	// Keys returns the keys that have a value, in rising order. It is valid until a key
	// is added, or Keys is called again; entries may be changed and deleted meanwhile.
	Keys() []S
	// Clear deletes all entries.
	Clear()
}

// NewMap makes state of a map a key; the name is unique in the function.
//
// Keys is how a function iterates in key order. It iterates over the keys of the current key
// of the stream: which other keys of the stream a task has depends on parallelism. To go
// through many, key the stream by what they have in common, and make them the map's.
//
// In the change log, and on disk, each entry of a map is one of its own: what an item
// changes is what is written.
func NewMap[S cmp.Ordered, V any, K comparable, Out any](c *Context[K, Out], name string, keys serde.Serde[S], vals serde.Serde[V], opts ...StateOption) MapState[S, V] {
	return process.NewMap(&c.call, name, item.State(keys, c.call.Name, name, c.chain.Fail), item.State(vals, c.call.Name, name, c.chain.Fail), ttlOf(c, name, opts))
}
