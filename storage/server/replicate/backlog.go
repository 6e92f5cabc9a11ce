package replicate

import (
	"sync"

	"tailrace.dev/tailrace/sharedlog/wire"
)

// Backlog holds the newest groups of a primary until they have been sent to its backups. Its size
// is bounded; a backup that needs older groups gets them from the segments.
type Backlog struct {
	limit int64

	mu     sync.Mutex
	groups []wire.Placed // valid from head on
	head   int
	bytes  int64
	more   chan struct{} // closed when a group is added
	closed bool
}

// NewBacklog returns a backlog of about limit bytes.
func NewBacklog(limit int64) *Backlog { return &Backlog{limit: limit, more: make(chan struct{})} }

// Add appends a group; Signal wakes the senders afterwards.
func (b *Backlog) Add(position uint64, w wire.Body) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.groups = append(b.groups, wire.Placed{Position: position, Body: w})
	for b.bytes += int64(len(w.Bytes)); b.bytes > b.limit && b.head < len(b.groups)-1; b.head++ {
		b.bytes -= int64(len(b.groups[b.head].Body.Bytes))
		b.groups[b.head] = wire.Placed{}
	}
	if b.head > 1024 && b.head > len(b.groups)/2 {
		n := copy(b.groups, b.groups[b.head:])
		clear(b.groups[n:])
		b.groups, b.head = b.groups[:n], 0
	}
}

// Signal wakes the senders.
func (b *Backlog) Signal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		close(b.more)
		b.more = make(chan struct{})
	}
}

// Close drops everything; the streams to the backups end.
func (b *Backlog) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		b.groups, b.head, b.bytes = nil, 0, 0
		close(b.more)
	}
}

// Release drops the groups below a position, which all backups hold.
func (b *Backlog) Release(position uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ; b.head < len(b.groups) && b.groups[b.head].Position < position; b.head++ {
		b.bytes -= int64(len(b.groups[b.head].Body.Bytes))
		b.groups[b.head] = wire.Placed{}
	}
}

// from appends groups from a position on to dst, about wire.MessageBytes of them. ok is false if the
// backlog does not hold them any more. If it does not hold them yet, from returns none; more is
// closed when there are more.
func (b *Backlog) from(position uint64, dst []wire.Placed) (groups []wire.Placed, more <-chan struct{}, ok, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := b.groups[b.head:]
	if len(rest) == 0 {
		return dst, b.more, true, b.closed
	}
	if rest[0].Position > position {
		return dst, nil, false, b.closed
	}
	lo, hi := 0, len(rest)
	for lo < hi {
		if mid := (lo + hi) / 2; rest[mid].Position >= position {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	bytes := 0
	for ; lo < len(rest) && (bytes == 0 || bytes < wire.MessageBytes); lo++ {
		dst = append(dst, rest[lo])
		bytes += len(rest[lo].Body.Bytes)
	}
	return dst, b.more, true, b.closed
}
