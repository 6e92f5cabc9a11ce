package process

import (
	"sort"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// EndingList is a List with a TTL. Values are sorted by time, so the first value ends first. A key
// has one timer, for the end of its first value. When a value is removed its timer stays; when that
// fires, it removes the values that have ended and is set for the first of the others.
type EndingList[K comparable, Out, V any] struct {
	c      *Call[K, Out]
	m      *state.List[K, V]
	timers *state.Timers[K]
	span   int64
	key    K // the current key; a local one would escape, an allocation a timer
}

// NewEndingList is NewList with values that end ttl ms after their times.
func NewEndingList[V any, K comparable, Out any](c *Call[K, Out], name string, sd serde.Serde[V], ttl int64) *EndingList[K, Out, V] {
	m := state.NewList(c.Table(name), c.RT.Groups(), c.Keys, sd)
	c.AddTable(m)
	h := &EndingList[K, Out, V]{c: c, m: m, timers: state.NewTimers(c.Table(name+".ends"), c.RT.Groups(), c.Keys), span: ttl}
	c.AddTable(h.timers.Table())
	// After the function's own timers, which may still read values that end at their time.
	c.chain.Add(c.id, h)
	return h
}

// end returns when a value of time t ends.
func (h *EndingList[K, Out, V]) end(t int64) int64 {
	if t > exec.MaxTime-h.span {
		return exec.MaxTime
	}
	return t + h.span
}

func (h *EndingList[K, Out, V]) All() []state.Elem[V] {
	all, now := h.m.Get(h.c.Group, &h.c.Key), h.c.now()
	if len(all) == 0 || h.end(all[0].Time) > now {
		return all
	}
	return all[sort.Search(len(all), func(i int) bool { return h.end(all[i].Time) > now }):]
}

func (h *EndingList[K, Out, V]) Add(time int64, v *V) {
	c := h.c
	if h.end(time) <= c.now() {
		return
	}
	all := h.m.Get(c.Group, &c.Key)
	if first := len(all) == 0 || time < all[0].Time; first {
		if len(all) > 0 {
			h.timers.Delete(c.Group, &c.Key, h.end(all[0].Time))
		}
		h.timers.Set(c.Group, &c.Key, h.end(time))
	}
	if _, err := h.m.Add(c.Group, &c.Key, time, v); err != nil {
		c.Fail(err)
	}
}

func (h *EndingList[K, Out, V]) DropBefore(t int64) { h.m.DropBefore(h.c.Group, &h.c.Key, t) }
func (h *EndingList[K, Out, V]) Delete()            { h.m.Delete(h.c.Group, &h.c.Key) }

// Advance implements advancer: it removes what has ended by w.
func (h *EndingList[K, Out, V]) Advance(w int64, m *exec.Meter) (done bool, err error) {
	for {
		if _, ok := h.timers.Next(w); !ok {
			return true, nil
		}
		var t int64
		var group int
		var ok bool
		if t, group, h.key, ok = h.timers.Pop(w); !ok {
			continue // an earlier value has come
		}
		all := h.m.Get(group, &h.key)
		h.m.DropFirst(group, &h.key, sort.Search(len(all), func(i int) bool { return h.end(all[i].Time) > t }))
		if all = h.m.Get(group, &h.key); len(all) > 0 {
			h.timers.Set(group, &h.key, h.end(all[0].Time))
		}
		if m.Units++; m.Over() {
			return false, nil
		}
	}
}

func (h *EndingList[K, Out, V]) Stand(int64) {}
