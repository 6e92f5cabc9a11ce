package operators

import (
	"sort"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/state"
)

// endingList is a List with a TTL. Values are in the order of their times, and so they end
// from the front. A key has one timer, for the end of its first value; the timer of a value
// that was removed stays, and finds what is first then.
type endingList[K comparable, Out, V any] struct {
	c      *Context[K, Out]
	m      *state.List[K, V]
	timers *state.Timers[K]
	span   int64
	key    K // being looked at; a local one would escape, an allocation a timer
}

func newEndingList[V any, K comparable, Out any](c *Context[K, Out], name string, m *state.List[K, V], span int64) *endingList[K, Out, V] {
	h := &endingList[K, Out, V]{c: c, m: m, timers: state.NewTimers(c.table(name+".ends"), c.rt.Groups(), c.keys), span: span}
	c.tabs = append(c.tabs, h.timers.Table())
	// Behind the function's own timers, which may still see what ends behind them.
	c.chain.add(c.id, h)
	return h
}

// end returns when a value of time t ends.
func (h *endingList[K, Out, V]) end(t int64) int64 {
	if t > MaxTime-h.span {
		return MaxTime
	}
	return t + h.span
}

func (h *endingList[K, Out, V]) All() []state.Elem[V] {
	all, now := h.m.Get(h.c.group, &h.c.key), h.c.now()
	if len(all) == 0 || h.end(all[0].Time) > now {
		return all
	}
	return all[sort.Search(len(all), func(i int) bool { return h.end(all[i].Time) > now }):]
}

func (h *endingList[K, Out, V]) Add(time int64, v *V) {
	c := h.c
	if h.end(time) <= c.now() {
		return
	}
	all := h.m.Get(c.group, &c.key)
	if first := len(all) == 0 || time < all[0].Time; first {
		if len(all) > 0 {
			h.timers.Delete(c.group, &c.key, h.end(all[0].Time))
		}
		h.timers.Set(c.group, &c.key, h.end(time))
	}
	if _, err := h.m.Add(c.group, &c.key, time, v); err != nil {
		c.fail(err)
	}
}

func (h *endingList[K, Out, V]) DropBefore(t int64) { h.m.DropBefore(h.c.group, &h.c.key, t) }
func (h *endingList[K, Out, V]) Delete()            { h.m.Delete(h.c.group, &h.c.key) }

// advance implements advancer: it removes what has ended by w.
func (h *endingList[K, Out, V]) advance(w int64, m *exec.Meter) (done bool, err error) {
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

func (h *endingList[K, Out, V]) stand(int64) {}
