package server

import (
	"sync"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// history is the newest part of what the Replica has shown. Safe for concurrent
// use.
type history struct {
	limit int

	mu      sync.Mutex
	after   uint64 // events hold everything behind this index
	events  []*logpb.Event
	index   uint64 // of the last entry, which may have no event
	tail    uint64
	changed chan struct{} // closed when there is more
	closed  bool
}

func newHistory(limit int, index uint64, tail sharedlog.LSN) *history {
	return &history{limit: limit, after: index, index: index, tail: uint64(tail), changed: make(chan struct{})}
}

func (h *history) signal() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// add appends events; the last entry has the given index, and the order then ends
// at tail.
func (h *history) add(events []*logpb.Event, index uint64, tail sharedlog.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, events...)
	h.index, h.tail = index, uint64(tail)
	if len(h.events) > 2*h.limit {
		drop := len(h.events) - h.limit
		h.after = h.events[drop-1].GetIndex()
		h.events = append([]*logpb.Event(nil), h.events[drop:]...)
	}
	h.signal()
}

// reset forgets all: a snapshot has taken the place of everything up to index.
func (h *history) reset(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events, h.after, h.index = nil, index, max(h.index, index)
	h.signal()
}

func (h *history) nudge() {
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

// view is what there is behind an index.
type view struct {
	events  []*logpb.Event // read only
	index   uint64
	tail    uint64
	gone    bool // some of what was asked for; not: it is not here yet
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
	lo, hi := 0, len(h.events)
	for lo < hi {
		if mid := (lo + hi) / 2; h.events[mid].GetIndex() > index {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	v.events = h.events[lo:len(h.events):len(h.events)]
	return v
}
