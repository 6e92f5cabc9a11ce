package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// StateOption is an option of NewValue, NewMap and NewList.
type StateOption func(*stateOptions)

type stateOptions struct{ ttl int64 }

// TTL makes a value end a time after it was last written, by Put, Update or Upsert. Time is
// event time: that of the current item or timer, or the watermark, if that is later (in a
// timer of the wall clock always the watermark). A function that is called at the time of
// the last write + d, or later, does not find the value. So what it finds follows from the
// items and the order in which they come, and with InOrder from the items and their times.
//
// What has ended leaves the state when the watermark gets there. Of a map each entry has
// its own time. A value of a list ends d after its own time, the one that List.Add was
// called with. d is a positive whole number of milliseconds.
func TTL(d time.Duration) StateOption {
	return func(o *stateOptions) {
		if o.ttl = d.Milliseconds(); d <= 0 || d%time.Millisecond != 0 {
			o.ttl = -1
		}
	}
}

func stateOptionsOf[K comparable, Out any](c *Context[K, Out], name string, opts []StateOption) (o stateOptions) {
	for _, f := range opts {
		f(&o)
	}
	if o.ttl < 0 {
		c.chain.errs = append(c.chain.errs, fmt.Errorf("%q, state %q: its TTL is not a positive whole number of milliseconds", c.name, name))
	}
	return o
}

// now returns the event time of the call that goes on.
func (c *Context[K, Out]) now() int64 {
	if c.wallCall {
		return c.w
	}
	return max(c.time, c.floor)
}

// addExpiring makes a table of a function whose values end.
func addExpiring[P comparable, V any, K comparable, Out any](c *Context[K, Out], name string, keys serde.Serde[P], vals serde.Serde[V], span int64) *state.Expiring[P, V] {
	x := state.NewExpiring(c.table(name), c.rt.Groups(), keys, vals, span, c.now)
	c.tabs = append(c.tabs, x.Tables()...)
	// After the function's own timers, which may still read what ends after them.
	c.chain.add(c.id, expirer{x})
	return x
}

// expirer implements advancer for an expiring table.
type expirer struct {
	of interface {
		Advance(w int64, m *exec.Meter) (done bool, err error)
	}
}

func (x expirer) advance(w int64, m *exec.Meter) (done bool, err error) { return x.of.Advance(w, m) }
func (x expirer) stand(int64)                                           {}

// endingValue is a Value with a TTL.
type endingValue[K comparable, Out, V any] struct {
	c *Context[K, Out]
	x *state.Expiring[K, V]
}

func (h *endingValue[K, Out, V]) Get() *V    { return h.x.Get(h.c.group, &h.c.key) }
func (h *endingValue[K, Out, V]) Update() *V { return h.x.Update(h.c.group, &h.c.key) }
func (h *endingValue[K, Out, V]) Upsert() *V {
	_, v, _ := h.x.Entry(h.c.group, &h.c.key)
	return v
}

func (h *endingValue[K, Out, V]) Put(v *V) {
	if err := h.x.Put(h.c.group, &h.c.key, v); err != nil {
		h.c.fail(err)
	}
}
func (h *endingValue[K, Out, V]) Delete() { h.x.Delete(h.c.group, &h.c.key) }
