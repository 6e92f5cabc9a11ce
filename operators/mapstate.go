package operators

import (
	"cmp"

	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
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
	if o := stateOptionsOf(c, name, opts); o.ttl > 0 {
		x := addExpiring(c, name, state.MapKeys(c.keys, keys), vals, o.ttl)
		return &mapOf[K, Out, S, V]{c, state.NewExpiringMaps(c.keys, x)}
	}
	m := state.NewMap(c.table(name), c.rt.Groups(), state.MapKeys(c.keys, keys), vals)
	c.tabs = append(c.tabs, m)
	return &mapOf[K, Out, S, V]{c, state.NewMaps(c.keys, m)}
}

// mapOf implements MapState for the current key.
type mapOf[K comparable, Out any, S cmp.Ordered, V any] struct {
	c *Context[K, Out]
	m *state.Maps[K, S, V]
}

func (h *mapOf[K, Out, S, V]) Get(k S) *V    { return h.m.Get(h.c.group, &h.c.key, k) }
func (h *mapOf[K, Out, S, V]) Update(k S) *V { return h.m.Update(h.c.group, &h.c.key, k) }
func (h *mapOf[K, Out, S, V]) Upsert(k S) *V { return h.m.Upsert(h.c.group, &h.c.key, k) }

func (h *mapOf[K, Out, S, V]) Put(k S, v *V) {
	if err := h.m.Put(h.c.group, &h.c.key, k, v); err != nil {
		h.c.fail(err)
	}
}
func (h *mapOf[K, Out, S, V]) Delete(k S) { h.m.Delete(h.c.group, &h.c.key, k) }
func (h *mapOf[K, Out, S, V]) Keys() []S  { return h.m.Keys(h.c.group, &h.c.key) }
func (h *mapOf[K, Out, S, V]) Clear()     { h.m.Clear(h.c.group, &h.c.key) }
