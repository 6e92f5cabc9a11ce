package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/serde"
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

// expiring is a table whose values end. Each entry has one timer, which is not moved when
// the entry is written: it looks then whether the entry has ended, or sets itself again.
type expiring[P comparable, V any] struct {
	m      *StateMap[P, ending[V]]
	timers *processTimers[P]
	vals   serde.Serde[V]
	span   int64
	now    func() int64
	// gone, if set, is called with an entry that has ended, and left the table.
	gone func(group int, key *P)
	key  P // being looked at; a local one would escape, an allocation a timer
}

// ending is a value that ends at until, and its timer. Invariant: armed ≤ until.
type ending[V any] struct {
	until, armed int64
	val          V
}

func endingSerde[V any](vals serde.Serde[V]) serde.Serde[ending[V]] {
	return serde.New("ending "+serde.NameOf(vals),
		func(dst []byte, v *ending[V]) []byte {
			return vals.Append(serde.AppendInt64(serde.AppendInt64(dst, v.until), v.until-v.armed), &v.val)
		},
		func(r *serde.Reader, v *ending[V]) {
			v.until = r.Int64()
			v.armed = v.until - r.Int64()
			serde.Take(r, vals, &v.val)
		})
}

func newExpiring[P comparable, V any, K comparable, Out any](c *Context[K, Out], name string, keys serde.Serde[P], vals serde.Serde[V], span int64) *expiring[P, V] {
	x := &expiring[P, V]{
		m:      NewStateMap(c.table(name), c.rt.Groups(), keys, endingSerde(vals)),
		timers: newProcessTimers(c.table(name+".ends"), c.rt, keys),
		vals:   vals, span: span, now: c.now,
	}
	c.tabs = append(c.tabs, x.timers.armed, x.m)
	// Behind the function's own timers, which may still see what ends behind them.
	c.chain.add(c.id, x)
	return x
}

func (x *expiring[P, V]) Get(group int, key *P) *V {
	if e := x.m.Get(group, key); e != nil && e.until > x.now() {
		return &e.val
	}
	return nil
}

func (x *expiring[P, V]) Update(group int, key *P) *V {
	if x.Get(group, key) == nil {
		return nil
	}
	e := x.m.Update(group, key)
	x.extend(e)
	return &e.val
}

func (x *expiring[P, V]) extend(e *ending[V]) {
	until := MaxTime
	if now := x.now(); now < MaxTime-x.span {
		until = now + x.span
	}
	e.until = max(e.until, until)
}

func (x *expiring[P, V]) cell(group int, key *P) (own *P, v *V, created bool) {
	now := x.now()
	e, created := x.m.upsert(group, key)
	s := &e.v.val
	switch {
	case created:
		s.until = MinTime
		x.extend(s)
		s.armed = s.until
		x.timers.set(group, &e.key, s.armed)
	case s.until <= now:
		var zero V
		s.val = zero
		x.extend(s)
	default:
		x.extend(s)
	}
	return &e.key, &s.val, created
}

func (x *expiring[P, V]) Put(group int, key *P, v *V) error {
	_, dst, _ := x.cell(group, key)
	if err := serde.CloneInto(x.vals, dst, v); err != nil {
		return fmt.Errorf("state %q: %w", x.m.name, err)
	}
	return nil
}

func (x *expiring[P, V]) Delete(group int, key *P) {
	if e := x.m.Get(group, key); e != nil {
		x.timers.delete(group, key, e.armed)
		x.m.Delete(group, key)
	}
}

// advance implements advancer: it removes what has ended by w.
func (x *expiring[P, V]) advance(w int64, m *meter) (done bool, err error) {
	for {
		if _, ok := x.timers.next(w); !ok {
			return true, nil
		}
		var t int64
		var group int
		t, group, x.key, _ = x.timers.queue.pop(w)
		x.timers.key = paneKey[P]{x.key, t}
		if x.timers.armed.Get(group, &x.timers.key) == nil {
			continue // the entry was deleted
		}
		x.timers.armed.Delete(group, &x.timers.key)
		if e := x.m.Get(group, &x.key); e.until > t {
			e = x.m.Update(group, &x.key)
			e.armed = e.until
			x.timers.set(group, &x.key, e.armed)
		} else {
			x.m.Delete(group, &x.key)
			if x.gone != nil {
				x.gone(group, &x.key)
			}
		}
		if m.units++; m.over() {
			return false, nil
		}
	}
}

func (x *expiring[P, V]) stand(int64) {}

// endingValue is a Value with a TTL.
type endingValue[K comparable, Out, V any] struct {
	c *Context[K, Out]
	x *expiring[K, V]
}

func (h *endingValue[K, Out, V]) Get() *V    { return h.x.Get(h.c.group, &h.c.key) }
func (h *endingValue[K, Out, V]) Update() *V { return h.x.Update(h.c.group, &h.c.key) }
func (h *endingValue[K, Out, V]) Upsert() *V {
	_, v, _ := h.x.cell(h.c.group, &h.c.key)
	return v
}

func (h *endingValue[K, Out, V]) Put(v *V) {
	if err := h.x.Put(h.c.group, &h.c.key, v); err != nil {
		h.c.fail(err)
	}
}
func (h *endingValue[K, Out, V]) Delete() { h.x.Delete(h.c.group, &h.c.key) }
