package server

import (
	"sync"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// history holds the newest events in memory, for followers that are nearly up to date. Others are
// served from disk (replay.go). It is safe for concurrent use.
type history struct {
	events limit
	bytes  limit // approximate, in memory

	mu      sync.Mutex
	after   uint64 // rows hold everything after this index
	rows    []*logpb.Event
	sizes   []int32 // of rows
	size    int64   // total of sizes
	index   uint64  // of the last entry, which may have no event
	tail    uint64
	changed chan struct{} // closed when something is added
	closed  bool
}

// limit is how much is kept at least, if available; up to twice as much is kept.
type limit int64

func newHistory(events int, bytes int64, index uint64, tail sharedlog.LSN) *history {
	return &history{events: limit(events), bytes: limit(bytes), after: index, index: index, tail: uint64(tail), changed: make(chan struct{})}
}

// sizeOf returns the approximate memory of the event of an effect in bytes.
func sizeOf(ef *sequencer.Effect) int32 {
	const base, run, addr = 200, 100, 50
	return int32(base + run*len(ef.Runs) + len(ef.Key) + len(ef.Value) + len(ef.Tag) + addr*len(ef.Info.Addrs) + 8*len(ef.Forgotten))
}

func (h *history) signal() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// add appends events and their sizes. index is that of the last entry, and tail the tail after it.
func (h *history) add(events []*logpb.Event, sizes []int32, index uint64, tail sharedlog.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows, h.sizes = append(h.rows, events...), append(h.sizes, sizes...)
	for _, n := range sizes {
		h.size += int64(n)
	}
	h.index, h.tail = index, uint64(tail)
	if len(h.rows) > 2*int(h.events) || h.size > 2*int64(h.bytes) {
		h.drop()
	}
	h.signal()
}

// drop removes the oldest events, down to the limits. It keeps the newest one.
func (h *history) drop() {
	n := max(0, len(h.rows)-int(h.events))
	size := h.size
	for i := range n {
		size -= int64(h.sizes[i])
	}
	for ; size > int64(h.bytes) && n < len(h.rows)-1; n++ {
		size -= int64(h.sizes[n])
	}
	if n == 0 {
		return
	}
	h.after, h.size = h.rows[n-1].GetIndex(), size
	h.rows, h.sizes = append([]*logpb.Event(nil), h.rows[n:]...), append([]int32(nil), h.sizes[n:]...)
}

// reset removes all events: a snapshot has replaced everything up to index.
func (h *history) reset(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows, h.sizes, h.size, h.after, h.index = nil, nil, 0, index, max(h.index, index)
	h.signal()
}

func (h *history) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.signal()
	}
}

func (h *history) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.signal()
}

// weight returns the number of events and their approximate size in bytes.
func (h *history) weight() (events int, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.rows), h.size
}

// view is the part of the history after an index.
type view struct {
	events  []*logpb.Event // read only
	sizes   []int32        // read only
	index   uint64
	tail    uint64
	gone    bool // a part of it has been dropped; false if it does not exist yet
	closed  bool
	changed <-chan struct{}
}

func (h *history) behind(index uint64) view {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := view{index: h.index, tail: h.tail, changed: h.changed, closed: h.closed, gone: index < h.after}
	if v.gone || index > h.index {
		return v
	}
	lo, hi := 0, len(h.rows)
	for lo < hi {
		if mid := (lo + hi) / 2; h.rows[mid].GetIndex() > index {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	v.events, v.sizes = h.rows[lo:len(h.rows):len(h.rows)], h.sizes[lo:len(h.sizes):len(h.sizes)]
	return v
}
