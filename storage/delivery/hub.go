package delivery

import (
	"math"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"tailrace.dev/tailrace/internal/deque"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

// Group is an ordered group with effect, in memory. Its records are the appender's own, or alias
// the buffer that was received or read from disk.
type Group struct {
	First   sharedlog.LSN
	Records []sharedlog.Record
	// Sums holds the checksums of the records (body.SumOf), nil if there are none.
	Sums  []byte
	Bytes int64 // of data
}

func (g *Group) end() sharedlog.LSN { return g.First + sharedlog.LSN(len(g.Records)) }

// groupOverhead is roughly the memory of a group besides its data. It keeps a cache of empty groups
// bounded, too.
const groupOverhead = 128

// Budget bounds the bytes in the queues of all cursors of a process: at most Limit, or one group
// more.
type Budget struct {
	Limit  int64
	queued atomic.Int64
}

// Queued returns the number of queued bytes.
func (b *Budget) Queued() int64 { return b.queued.Load() }

func (b *Budget) full() bool { return b.queued.Load() > b.Limit }

// Options configures a Hub.
type Options struct {
	Store *segment.Store
	Index *tagindex.Index
	// CacheBytes bounds the newest groups that stay in memory, in bytes.
	CacheBytes int64
	// Readers is shared by all hubs of a process.
	Readers *Budget
	// Tail is the initial tail: everything below it is published.
	Tail sharedlog.LSN
}

// Hub publishes the ordered groups of one shard. It keeps the newest ones in memory, and the
// cursors that wait for more. All methods are safe for concurrent use.
//
// Lock order: Hub.mu, then Cursor.mu.
type Hub struct {
	store *segment.Store
	index *tagindex.Index
	// published is the tail: everything below it is published. It moves after all cursors have
	// received what lies below.
	published atomic.Uint64
	readers   *Budget

	mu     sync.Mutex
	cache  deque.Deque[Group]
	cached int64 // bytes, with overhead
	limit  int64
	// floor is the LSN from which the cache holds every group with effect.
	floor sharedlog.LSN
	subs  map[sharedlog.Tag][]*Cursor
	all   map[*Cursor]struct{}
	// until holds the cursors that end above published. nearest is the lowest of their ends, so
	// that Publish looks at them only when one ends.
	until   []*Cursor
	nearest sharedlog.LSN
	closed  error
	woken   []*Cursor // in one Publish; reused
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

// Tail returns the LSN below which everything is published.
func (h *Hub) Tail() sharedlog.LSN { return sharedlog.LSN(h.published.Load()) }

// Publish publishes groups, which are durable and follow those published before, and moves the
// tail. tail is at or above their end. Cursors opened from now on pull them instead. The caller
// must not change the records any more; it may reuse the slice.
func (h *Hub) Publish(groups []Group, tail sharedlog.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range groups {
		g := &groups[i]
		h.cache.Push(*g)
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

// shrink evicts the oldest groups beyond the limit. The caller holds mu.
func (h *Hub) shrink() {
	for h.cached > h.limit && h.cache.Len() > 1 {
		g := h.cache.Front()
		h.cached -= g.Bytes + groupOverhead
		h.floor = g.end()
		h.cache.PopFront()
	}
}

// Limit sets how many bytes of the newest groups stay in memory.
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

// Watch sends to c, without blocking, whenever Tail moves, a trim point changes, or the hub is
// closed, until Unwatch.
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

// Forget drops the cache.
func (h *Hub) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cache, h.cached, h.floor = deque.Deque[Group]{}, 0, math.MaxUint64
}

// push gives a group, once, to every live cursor that follows one of its tags.
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

// endReached wakes the cursors that have reached their end, and removes them from until.
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

// subscribe makes c live: from the current tail on, c receives every group that matches.
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

// Trim passes the new trim point of a tag to the cursors that follow it.
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

// TrimAll passes the trim points of their tags to all cursors.
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

// find returns the group that starts at first, if it is in the cache.
func (h *Hub) find(first sharedlog.LSN) (Group, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first < h.floor {
		return Group{}, false
	}
	i := sort.Search(h.cache.Len(), func(i int) bool { return h.cache.At(i).First >= first })
	if i == h.cache.Len() || h.cache.At(i).First != first {
		return Group{}, false
	}
	return *h.cache.At(i), true
}

// Cached returns the size of the cache in bytes.
func (h *Hub) Cached() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cached
}
