package embedded

import (
	"sync"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

type requestKind uint8

const (
	requestAppend requestKind = iota
	requestChange
	requestTrim
)

// request is a request to the loop.
type request struct {
	kind  requestKind
	bytes int64

	// For requestAppend:
	group   sharedlog.Group
	frame   segment.Frame
	pending *sharedlog.Pending

	// For the others: entry is proposed; effect or err is set when done is closed.
	entry  sequencer.Entry
	effect sequencer.Effect
	err    error
	done   chan struct{}
	waits  bool // it has taken effect, and is answered when that is durable
}

// fail ends a request that has no effect, or whose effect is unknown.
func (r *request) fail(err error) {
	if r.kind == requestAppend {
		r.pending.Complete(0, err)
		return
	}
	r.err = err
	close(r.done)
}

// requestOverhead is added to a request's size, so that a queue of empty groups is bounded, too.
const requestOverhead = 256

// queue holds, in order, the requests that the loop has not taken. It is bounded in bytes, but
// always accepts one request.
type queue struct {
	limit int64

	mu     sync.Mutex
	space  sync.Cond // signalled when there is room or the queue is closed
	work   sync.Cond // signalled when there is a request or the queue is closed
	items  []*request
	bytes  int64
	closed error // error for new requests
	cause  error // why the log failed, or nil
}

func (q *queue) init(limit int64) {
	q.limit = limit
	q.space.L, q.work.L = &q.mu, &q.mu
}

func (q *queue) put(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.closed == nil && len(q.items) > 0 && q.bytes+r.bytes > q.limit {
		q.space.Wait()
	}
	if q.closed != nil {
		return q.closed
	}
	q.items = append(q.items, r)
	q.bytes += r.bytes + requestOverhead
	if len(q.items) == 1 {
		q.work.Signal()
	}
	return nil
}

// take waits for requests and exchanges them for an empty slice. ok is false when the queue is
// closed.
func (q *queue) take(empty []*request) (items []*request, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && q.closed == nil {
		q.work.Wait()
	}
	if q.closed != nil {
		return nil, false
	}
	items, q.items, q.bytes = q.items, empty, 0
	q.space.Broadcast()
	return items, true
}

// close makes all later requests fail with err.
func (q *queue) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil {
		q.closed = err
	}
	q.space.Broadcast()
	q.work.Broadcast()
}

// fail is close for a log that cannot continue.
func (q *queue) fail(cause error) {
	q.mu.Lock()
	if q.cause == nil {
		q.cause = cause
	}
	q.mu.Unlock()
	q.close(sharedlog.Errorf(sharedlog.KindClosed, "the log has failed and must be opened again: %w", cause))
}

// rest returns the requests that the loop did not take.
func (q *queue) rest() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}

// failure returns why requests are refused, or nil if they are accepted.
func (q *queue) failure() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// broken returns why the log failed, or nil if it has not.
func (q *queue) broken() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cause
}
