package process

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// now returns the event time of the current call.
func (c *Call[K, Out]) now() int64 {
	if c.wallCall {
		return c.W
	}
	return max(c.Time, c.Floor)
}

// addExpiring makes a table of a function whose values end span ms after they were last written,
// 0: never.
func addExpiring[P comparable, V any, K comparable, Out any](c *Call[K, Out], name string, keys serde.Serde[P], vals serde.Serde[V], span int64) *state.Expiring[P, V] {
	x := state.NewExpiring(c.Table(name), c.RT.Groups(), keys, vals, span, c.now)
	c.AddTable(x.Tables()...)
	if span > 0 {
		// After the function's own timers, which may still read what ends after them.
		c.chain.Add(c.id, expirer{x})
	}
	return x
}

// expirer implements advancer for an expiring table.
type expirer struct {
	of interface {
		Advance(w int64, m *exec.Meter) (done bool, err error)
	}
}

func (x expirer) Advance(w int64, m *exec.Meter) (done bool, err error) { return x.of.Advance(w, m) }
func (x expirer) Stand(int64)                                           {}

// NewEndingValue is NewValue with values that end ttl ms after they were last written, 0: never.
func NewEndingValue[V any, K comparable, Out any](c *Call[K, Out], name string, sd serde.Serde[V], ttl int64) *EndingValue[K, Out, V] {
	return &EndingValue[K, Out, V]{c, addExpiring(c, name, c.Keys, sd, ttl)}
}

// EndingValue is a Value that may have a TTL.
type EndingValue[K comparable, Out, V any] struct {
	c *Call[K, Out]
	x *state.Expiring[K, V]
}

func (h *EndingValue[K, Out, V]) Get() *V    { return h.x.Get(h.c.Group, &h.c.Key) }
func (h *EndingValue[K, Out, V]) Update() *V { return h.x.Update(h.c.Group, &h.c.Key) }
func (h *EndingValue[K, Out, V]) Upsert() *V {
	_, v, _ := h.x.Entry(h.c.Group, &h.c.Key)
	return v
}

func (h *EndingValue[K, Out, V]) Put(v *V) {
	if err := h.x.Put(h.c.Group, &h.c.Key, v); err != nil {
		h.c.Fail(err)
	}
}
func (h *EndingValue[K, Out, V]) Delete() { h.x.Delete(h.c.Group, &h.c.Key) }
