package delivery

import (
	"math"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

// Group is an ordered group that took effect, in memory: its records are the
// appender's own, or alias what was received or read from disk.
type Group struct {
	First   sharedlog.LSN
	Records []sharedlog.Record
	// Sums holds the checksums of the records (body.SumOf), nil if there are none.
	Sums  []byte
	Bytes int64 // of data
}

func (g *Group) end() sharedlog.LSN { return g.First + sharedlog.LSN(len(g.Records)) }

// groupOverhead is what a group in memory costs beside its data, roughly: it
// keeps a cache of empty groups bounded too.
const groupOverhead = 128

// Budget bounds what waits in the queues of all cursors of a process, in bytes: at
// most Limit, or one group more.
type Budget struct {
	Limit  int64
	queued atomic.Int64
}

// Queued returns how many bytes wait.
func (b *Budget) Queued() int64 { return b.queued.Load() }

func (b *Budget) full() bool { return b.queued.Load() > b.Limit }

// Options of a Hub.
type Options struct {
	Store *segment.Store
	Index *tagindex.Index
	// CacheBytes is how much of the newest part of the shard stays in memory.
	CacheBytes int64
	// Readers is shared by all hubs of a process.
	Readers *Budget
	// Tail is the LSN below which everything is shown at the beginning.
	Tail sharedlog.LSN
}

// Hub is where the order of one shard is shown: the newest part of it in memory,
// and the cursors that wait for more. All methods are safe for concurrent use.
//
// Lock order: Hub.mu, then Cursor.mu.
type Hub struct {
	store *segment.Store
	index *tagindex.Index
	// published is the LSN below which everything is shown; it moves when all
	// cursors have been given what lies below.
	published atomic.Uint64
	readers   *Budget

	mu     sync.Mutex
	cache  deque[Group]
	cached int64 // bytes, with overhead
	limit  int64
	// floor is the LSN from which on the cache holds every group with effect.
	floor sharedlog.LSN
	subs  map[sharedlog.Tag][]*Cursor
	all   map[*Cursor]struct{}
	// until holds the cursors that end above published; the nearest end is
	// kept beside them, so that publishing looks at them only when one ends.
	until   []*Cursor
	nearest sharedlog.LSN
	closed  error
	woken   []*Cursor // of one publish, reused
	watch   map[chan<- struct{}]struct{}
}

// New returns a hub without cursors.
func New(o Options) *Hub {
	h := &Hub{
		store: o.Store, index: o.Index, readers: o.Readers,
		limit:   o.CacheBytes,
		floor:   o.Tail,
		subs:    map[sharedlog.Tag][]*Cursor{},
		all:     map[*Cursor]struct{}{},
		watch:   map[chan<- struct{}]struct{}{},
		nearest: math.MaxUint64,
	}
	h.published.Store(uint64(o.Tail))
	return h
}

// Tail returns the LSN below which everything is shown.
func (h *Hub) Tail() sharedlog.LSN { return sharedlog.LSN(h.published.Load()) }

// Publish shows groups, which are durable and follow what was shown, up to tail, which
// is not below their end: a cursor that comes from now on is not given them.
// Their records must not be written any more; the slice may.
func (h *Hub) Publish(groups []Group, tail sharedlog.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range groups {
		g := &groups[i]
		h.cache.push(*g)
		h.cached += g.Bytes + groupOverhead
		if len(h.subs) > 0 {
			h.push(g)
		}
	}
	h.shrink()
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
	for c := range h.watch {
		notify(c)
	}
}

// shrink lets go of the oldest groups beyond the limit; mu is held.
func (h *Hub) shrink() {
	for h.cached > h.limit && h.cache.len() > 1 {
		g := h.cache.front()
		h.cached -= g.Bytes + groupOverhead
		h.floor = g.end()
		h.cache.popFront()
	}
}

// Limit changes how much of the newest part stays in memory, in bytes.
func (h *Hub) Limit(bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limit = bytes
	h.shrink()
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Watch has a token put into c, if there is room, whenever Tail has moved, a trim was
// told, or the hub was closed, until Unwatch.
func (h *Hub) Watch(c chan<- struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watch[c] = struct{}{}
}

// Unwatch ends Watch.
func (h *Hub) Unwatch(c chan<- struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watch, c)
}

// Forget gives up what is in memory of the newest part.
func (h *Hub) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cache, h.cached, h.floor = deque[Group]{}, 0, math.MaxUint64
}

// push gives a group to every live cursor that follows one of its tags, once.
func (h *Hub) push(g *Group) {
	for i := range g.Records {
		for _, tag := range g.Records[i].Tags {
			for _, c := range h.subs[tag] {
				if c.offered == g.First {
					continue
				}
				c.offered = g.First
				if c.push(g) && !c.woken {
					c.woken = true
					h.woken = append(h.woken, c)
				}
			}
		}
	}
}

// endReached wakes the cursors whose end has come, and forgets them.
func (h *Hub) endReached(tail sharedlog.LSN) {
	h.nearest = math.MaxUint64
	h.until = slices.DeleteFunc(h.until, func(c *Cursor) bool {
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
func (h *Hub) subscribe(c *Cursor) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != nil {
		return h.closed
	}
	h.all[c] = struct{}{}
	for _, t := range c.tags {
		h.subs[t] = append(h.subs[t], c)
	}
	if c.until > h.Tail() {
		h.until = append(h.until, c)
		h.nearest = min(h.nearest, c.until)
	}
	c.join(h.Tail())
	return nil
}

// rejoin makes a cursor live again that had used up its credit.
func (h *Hub) rejoin(c *Cursor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.join(h.Tail())
}

func (h *Hub) unsubscribe(c *Cursor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.all[c]; !ok {
		return
	}
	delete(h.all, c)
	is := func(o *Cursor) bool { return o == c }
	for _, t := range c.tags {
		if h.subs[t] = slices.DeleteFunc(h.subs[t], is); len(h.subs[t]) == 0 {
			delete(h.subs, t)
		}
	}
	h.until = slices.DeleteFunc(h.until, is)
}

// Trim tells the cursors that follow tag where it now begins.
func (h *Hub) Trim(tag sharedlog.Tag, before sharedlog.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.subs[tag] {
		c.trimmed(before)
		c.signal()
	}
	for c := range h.watch {
		notify(c)
	}
}

// TrimAll tells all cursors where the tags that they follow begin now.
func (h *Hub) TrimAll(trimPoint func(sharedlog.Tag) sharedlog.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for tag, cursors := range h.subs {
		before := trimPoint(tag)
		for _, c := range cursors {
			c.trimmed(before)
			c.signal()
		}
	}
	for c := range h.watch {
		notify(c)
	}
}

// Close ends all cursors with err.
func (h *Hub) Close(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != nil {
		return
	}
	h.closed = err
	for c := range h.all {
		c.end(err)
	}
	for c := range h.watch {
		notify(c)
	}
}

// Err returns why the hub was closed, nil if it was not.
func (h *Hub) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// find returns the group that begins at first, if it is in the cache.
func (h *Hub) find(first sharedlog.LSN) (Group, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first < h.floor {
		return Group{}, false
	}
	i := sort.Search(h.cache.len(), func(i int) bool { return h.cache.at(i).First >= first })
	if i == h.cache.len() || h.cache.at(i).First != first {
		return Group{}, false
	}
	return *h.cache.at(i), true
}

// Cached returns how many bytes the newest part takes in memory.
func (h *Hub) Cached() int64 {
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
