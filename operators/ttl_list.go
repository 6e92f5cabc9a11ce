package operators

import "sort"

// endingList is a List with a TTL. Values are in the order of their times, and so they end
// from the front. A key has one timer, for the end of its first value; the timer of a value
// that was removed stays, and finds what is first then.
type endingList[K comparable, Out, V any] struct {
	c      *Context[K, Out]
	m      *StateList[K, V]
	timers *processTimers[K]
	span   int64
	key    K // being looked at; a local one would escape, an allocation a timer
}

func newEndingList[V any, K comparable, Out any](c *Context[K, Out], name string, m *StateList[K, V], span int64) *endingList[K, Out, V] {
	h := &endingList[K, Out, V]{c: c, m: m, timers: newProcessTimers(c.table(name+".ends"), c.rt, c.keys), span: span}
	c.tabs = append(c.tabs, h.timers.armed)
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

func (h *endingList[K, Out, V]) All() []Elem[V] {
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
			h.timers.delete(c.group, &c.key, h.end(all[0].Time))
		}
		h.timers.set(c.group, &c.key, h.end(time))
	}
	if _, err := h.m.Add(c.group, &c.key, time, v); err != nil {
		c.fail(err)
	}
}

func (h *endingList[K, Out, V]) DropBefore(t int64) { h.m.DropBefore(h.c.group, &h.c.key, t) }
func (h *endingList[K, Out, V]) Delete()            { h.m.Delete(h.c.group, &h.c.key) }

// advance implements advancer: it removes what has ended by w.
func (h *endingList[K, Out, V]) advance(w int64, m *meter) (done bool, err error) {
	for {
		if _, ok := h.timers.next(w); !ok {
			return true, nil
		}
		var t int64
		var group int
		t, group, h.key, _ = h.timers.queue.pop(w)
		h.timers.key = paneKey[K]{h.key, t}
		if h.timers.armed.Get(group, &h.timers.key) == nil {
			continue // an earlier value has come
		}
		h.timers.armed.Delete(group, &h.timers.key)
		all := h.m.Get(group, &h.key)
		h.m.DropFirst(group, &h.key, sort.Search(len(all), func(i int) bool { return h.end(all[i].Time) > t }))
		if all = h.m.Get(group, &h.key); len(all) > 0 {
			h.timers.set(group, &h.key, h.end(all[0].Time))
		}
		if m.units++; m.over() {
			return false, nil
		}
	}
}

func (h *endingList[K, Out, V]) stand(int64) {}
