package embedded

import (
	"math"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"tailrace.dev/tailrace/sharedlog"
)

// group is an ordered group that took effect, in memory: its records are the
// appender's own, or alias what was read from disk.
type group struct {
	first   sharedlog.LSN
	records []sharedlog.Record
	bytes   int64 // of data
}

func (g *group) end() sharedlog.LSN { return g.first + sharedlog.LSN(len(g.records)) }

// groupOverhead is what a group in memory costs beside its data, roughly: it
// keeps a cache of empty groups bounded too.
const groupOverhead = 128

// hub is where the order is shown: the newest part of it in memory, and the
// cursors that wait for more.
//
// Lock order: hub.mu, then cursor.mu.
type hub struct {
	// published is the LSN below which everything is shown; it moves when all
	// cursors have been given what lies below.
	published atomic.Uint64
	// queued is what waits in the cursors' queues, in bytes; at most queuedLimit,
	// or one group more.
	queued      atomic.Int64
	queuedLimit int64

	mu     sync.Mutex
	cache  deque[group]
	cached int64 // bytes, with overhead
	limit  int64
	// floor is the LSN from which on the cache holds every group with effect.
	floor sharedlog.LSN
	subs  map[sharedlog.Tag][]*cursor
	all   map[*cursor]struct{}
	// until holds the cursors that end above published; the nearest end is
	// kept beside them, so that publishing looks at them only when one ends.
	until   []*cursor
	nearest sharedlog.LSN
	closed  error
	woken   []*cursor // of one publish, reused
}

func newHub(limit, queuedLimit int64, tail sharedlog.LSN) *hub {
	h := &hub{
		queuedLimit: queuedLimit,

		limit:   limit,
		floor:   tail,
		subs:    map[sharedlog.Tag][]*cursor{},
		all:     map[*cursor]struct{}{},
		nearest: math.MaxUint64,
	}
	h.published.Store(uint64(tail))
	return h
}

func (h *hub) tail() sharedlog.LSN { return sharedlog.LSN(h.published.Load()) }

// publish shows groups, which are durable and follow what was shown, up to tail.
func (h *hub) publish(groups []group, tail sharedlog.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range groups {
		g := &groups[i]
		h.cache.push(*g)
		h.cached += g.bytes + groupOverhead
		if len(h.subs) > 0 {
			h.push(g)
		}
	}
	for h.cached > h.limit && h.cache.len() > 1 {
		g := h.cache.front()
		h.cached -= g.bytes + groupOverhead
		h.floor = g.end()
		h.cache.popFront()
	}
	h.published.Store(uint64(tail))
	for _, c := range h.woken {
		c.woken = false
		c.signal()
	}
	clear(h.woken)
	h.woken = h.woken[:0]
	if tail >= h.nearest {
		h.endReached(tail)
	}
}

// push gives a group to every live cursor that follows one of its tags, once.
func (h *hub) push(g *group) {
	for i := range g.records {
		for _, tag := range g.records[i].Tags {
			for _, c := range h.subs[tag] {
				if c.offered == g.first {
					continue
				}
				c.offered = g.first
				if c.push(g) && !c.woken {
					c.woken = true
					h.woken = append(h.woken, c)
				}
			}
		}
	}
}

// endReached wakes the cursors whose end has come, and forgets them.
func (h *hub) endReached(tail sharedlog.LSN) {
	h.nearest = math.MaxUint64
	h.until = slices.DeleteFunc(h.until, func(c *cursor) bool {
		if c.until <= tail {
			c.signal()
			return true
		}
		h.nearest = min(h.nearest, c.until)
		return false
	})
}

// subscribe makes c live: from the LSN that it returns on, c is given every
// group that matches.
func (h *hub) subscribe(c *cursor) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != nil {
		return h.closed
	}
	h.all[c] = struct{}{}
	for _, t := range c.tags {
		h.subs[t] = append(h.subs[t], c)
	}
	if c.until > h.tail() {
		h.until = append(h.until, c)
		h.nearest = min(h.nearest, c.until)
	}
	c.join(h.tail())
	return nil
}

// rejoin makes a cursor live again that had used up its credit.
func (h *hub) rejoin(c *cursor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.join(h.tail())
}

func (h *hub) unsubscribe(c *cursor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.all[c]; !ok {
		return
	}
	delete(h.all, c)
	is := func(o *cursor) bool { return o == c }
	for _, t := range c.tags {
		if h.subs[t] = slices.DeleteFunc(h.subs[t], is); len(h.subs[t]) == 0 {
			delete(h.subs, t)
		}
	}
	h.until = slices.DeleteFunc(h.until, is)
}

// trim tells the cursors that follow tag where it now begins.
func (h *hub) trim(tag sharedlog.Tag, before sharedlog.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.subs[tag] {
		c.trimmed(before)
		c.signal()
	}
}

// close ends all cursors with err.
func (h *hub) close(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != nil {
		return
	}
	h.closed = err
	for c := range h.all {
		c.end(err)
	}
}

// find returns the group that begins at first, if it is in the cache.
func (h *hub) find(first sharedlog.LSN) (group, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first < h.floor {
		return group{}, false
	}
	i := sort.Search(h.cache.len(), func(i int) bool { return h.cache.at(i).first >= first })
	if i == h.cache.len() || h.cache.at(i).first != first {
		return group{}, false
	}
	return *h.cache.at(i), true
}

func (h *hub) cachedBytes() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cached
}

// deque is a queue that keeps its memory; it grows by doubling.
type deque[T any] struct {
	buf  []T // length 0 or a power of two
	head int
	n    int
}

func (d *deque[T]) len() int { return d.n }

func (d *deque[T]) at(i int) *T { return &d.buf[(d.head+i)&(len(d.buf)-1)] }

func (d *deque[T]) front() *T { return d.at(0) }

func (d *deque[T]) push(v T) {
	if d.n == len(d.buf) {
		bigger := make([]T, max(64, 2*len(d.buf)))
		for i := range d.n {
			bigger[i] = *d.at(i)
		}
		d.buf, d.head = bigger, 0
	}
	d.n++
	*d.at(d.n - 1) = v
}

func (d *deque[T]) popFront() {
	var zero T
	*d.front() = zero
	d.head = (d.head + 1) & (len(d.buf) - 1)
	d.n--
}
