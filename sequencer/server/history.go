package server

import (
	"sync"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// history is the newest part of what the Replica has shown, in memory: for followers that
// are hardly behind. Those that are further behind are served from disk (replay.go). Safe
// for concurrent use.
type history struct {
	events limit
	bytes  limit // in memory, about

	mu      sync.Mutex
	after   uint64 // rows hold everything behind this index
	rows    []*logpb.Event
	sizes   []int32 // of rows
	size    int64   // of all
	index   uint64  // of the last entry, which may have no event
	tail    uint64
	changed chan struct{} // closed when there is more
	closed  bool
}

// limit is how much of something is kept, at least when it is there; up to twice that
// much is.
type limit int64

func newHistory(events int, bytes int64, index uint64, tail sharedlog.LSN) *history {
	return &history{events: limit(events), bytes: limit(bytes), after: index, index: index, tail: uint64(tail), changed: make(chan struct{})}
}

// sizeOf returns about how many bytes of memory the event of an effect takes.
func sizeOf(ef *sequencer.Effect) int32 {
	const base, run, addr = 200, 100, 50
	return int32(base + run*len(ef.Runs) + len(ef.Key) + len(ef.Value) + len(ef.Tag) + addr*len(ef.Info.Addrs) + 8*len(ef.Forgotten))
}

func (h *history) signal() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// add appends events and their sizes; the last entry has the given index, and the order
// then ends at tail.
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

// drop drops the oldest events, down to the limits. The newest one stays.
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

// reset forgets all: a snapshot has taken the place of everything up to index.
func (h *history) reset(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows, h.sizes, h.size, h.after, h.index = nil, nil, 0, index, max(h.index, index)
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

// weight returns how many events there are, and about how many bytes.
func (h *history) weight() (events int, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.rows), h.size
}

// view is what there is behind an index.
type view struct {
	events  []*logpb.Event // read only
	sizes   []int32        // read only
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
