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

// request is what the loop is asked for.
type request struct {
	kind  requestKind
	bytes int64

	// requestAppend:
	group   sharedlog.Group
	frame   segment.Frame
	pending *sharedlog.Pending

	// The others: entry is proposed, effect (or err) is there when done is
	// closed.
	entry  sequencer.Entry
	effect sequencer.Effect
	err    error
	done   chan struct{}
	waits  bool // it has its effect, and is answered when that is durable
}

// fail ends a request that has no effect, or none that anybody knows.
func (r *request) fail(err error) {
	if r.kind == requestAppend {
		r.pending.Complete(0, err)
		return
	}
	r.err = err
	close(r.done)
}

// requestOverhead bounds a queue of empty groups too.
const requestOverhead = 256

// queue holds the requests that the loop has not taken: in order, bounded in
// bytes. One request is always let in.
type queue struct {
	limit int64

	mu     sync.Mutex
	space  sync.Cond // there is room, or the queue is closed
	work   sync.Cond // there is a request, or the queue is closed
	items  []*request
	bytes  int64
	closed error // for new requests
	cause  error // why the log failed, if it did
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

// take waits for requests and exchanges them for an empty slice. ok is false when
// the queue is closed.
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

// close refuses what comes from now on with err.
func (q *queue) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil {
		q.closed = err
	}
	q.space.Broadcast()
	q.work.Broadcast()
}

// fail is close for a log that cannot go on.
func (q *queue) fail(cause error) {
	q.mu.Lock()
	if q.cause == nil {
		q.cause = cause
	}
	q.mu.Unlock()
	q.close(sharedlog.Errorf(sharedlog.KindClosed, "the log has failed and must be opened again: %w", cause))
}

// rest returns what nobody took.
func (q *queue) rest() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}

// failure returns why requests are refused, nil if they are not.
func (q *queue) failure() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// broken returns why the log failed, nil if it did not.
func (q *queue) broken() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cause
}
