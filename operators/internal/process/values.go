package process

import (
	"cmp"

	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// NewValue makes state of one value a key.
func NewValue[V any, K comparable, Out any](c *Call[K, Out], name string, sd serde.Serde[V]) *Value[K, Out, V] {
	m := state.NewMap(c.Table(name), c.RT.Groups(), c.Keys, sd)
	c.AddTable(m)
	return &Value[K, Out, V]{c, m}
}

// Value is one value of the current key.
type Value[K comparable, Out, V any] struct {
	c *Call[K, Out]
	m *state.Map[K, V]
}

func (h *Value[K, Out, V]) Get() *V    { return h.m.Get(h.c.Group, &h.c.Key) }
func (h *Value[K, Out, V]) Update() *V { return h.m.Update(h.c.Group, &h.c.Key) }
func (h *Value[K, Out, V]) Upsert() *V {
	v, _ := h.m.Upsert(h.c.Group, &h.c.Key)
	return v
}

func (h *Value[K, Out, V]) Put(v *V) {
	if err := h.m.Put(h.c.Group, &h.c.Key, v); err != nil {
		h.c.Fail(err)
	}
}
func (h *Value[K, Out, V]) Delete() { h.m.Delete(h.c.Group, &h.c.Key) }

// NewList makes state of a list a key.
func NewList[V any, K comparable, Out any](c *Call[K, Out], name string, sd serde.Serde[V]) *List[K, Out, V] {
	m := state.NewList(c.Table(name), c.RT.Groups(), c.Keys, sd)
	c.AddTable(m)
	return &List[K, Out, V]{c, m}
}

// List is a list of the current key.
type List[K comparable, Out, V any] struct {
	c *Call[K, Out]
	m *state.List[K, V]
}

func (h *List[K, Out, V]) All() []state.Elem[V] { return h.m.Get(h.c.Group, &h.c.Key) }
func (h *List[K, Out, V]) Add(time int64, v *V) {
	if _, err := h.m.Add(h.c.Group, &h.c.Key, time, v); err != nil {
		h.c.Fail(err)
	}
}
func (h *List[K, Out, V]) DropBefore(t int64) { h.m.DropBefore(h.c.Group, &h.c.Key, t) }
func (h *List[K, Out, V]) Delete()            { h.m.Delete(h.c.Group, &h.c.Key) }

// NewMap makes state of a map a key, whose entries end after ttl ms, 0: never.
func NewMap[S cmp.Ordered, V any, K comparable, Out any](c *Call[K, Out], name string, keys serde.Serde[S], vals serde.Serde[V], ttl int64) *Map[K, Out, S, V] {
	return &Map[K, Out, S, V]{c, state.NewMaps(c.Keys, addExpiring(c, name, state.MapKeys(c.Keys, keys), vals, ttl))}
}

// Map is a map of the current key.
type Map[K comparable, Out any, S cmp.Ordered, V any] struct {
	c *Call[K, Out]
	m *state.Maps[K, S, V]
}

func (h *Map[K, Out, S, V]) Get(k S) *V    { return h.m.Get(h.c.Group, &h.c.Key, k) }
func (h *Map[K, Out, S, V]) Update(k S) *V { return h.m.Update(h.c.Group, &h.c.Key, k) }
func (h *Map[K, Out, S, V]) Upsert(k S) *V { return h.m.Upsert(h.c.Group, &h.c.Key, k) }

func (h *Map[K, Out, S, V]) Put(k S, v *V) {
	if err := h.m.Put(h.c.Group, &h.c.Key, k, v); err != nil {
		h.c.Fail(err)
	}
}
func (h *Map[K, Out, S, V]) Delete(k S) { h.m.Delete(h.c.Group, &h.c.Key, k) }
func (h *Map[K, Out, S, V]) Keys() []S  { return h.m.Keys(h.c.Group, &h.c.Key) }
func (h *Map[K, Out, S, V]) Clear()     { h.m.Clear(h.c.Group, &h.c.Key) }
