package delivery

import (
	"context"
	"errors"
	"io"
	"sync"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/wire"
)

const (
	defaultCredit = 1 << 20
	// pullTries is how many times a cursor queries the index in one pull. It retries once for each
	// segment that is deleted during the pull.
	pullTries = 100
)

// Cursor is a sharedlog.Reader of one shard. The groups that it has still to deliver are in two
// places:
//
//	        pos          queueFrom              lost
//	---------+---------------+-------------------+------------- published
//	 shown   | pulled by the | pushed by the hub | (again pulled, when
//	         | tag index     | into queue        |  the queue is empty)
//	         +---------------+-------------------+
//
// A cursor that keeps up is live: it has no lost part, and all groups arrive through the queue.
// When the queue holds credit bytes the hub stops pushing at lost, without waiting. The reader then
// empties the queue, joins again at the end that is published by then, and pulls the groups in
// between, from cache or disk, on its own goroutine. The queue fills in the meantime, so a reader
// that is as fast as the log is live again after one round.
type Cursor struct {
	hub    *Hub
	tags   []sharedlog.Tag
	set    map[sharedlog.Tag]struct{} // used if there are many tags
	until  sharedlog.LSN
	credit int64
	ready  chan struct{}

	// Used by the hub, under Hub.mu:
	offered sharedlog.LSN // first LSN of the last group offered
	woken   bool

	mu        sync.Mutex
	queue     []Group
	queued    int64 // bytes
	queueFrom sharedlog.LSN
	live      bool
	lost      sharedlog.LSN // valid if not live
	trim      sharedlog.LSN // no followed tag has records below it
	ended     error

	// Used by the reading goroutine:
	pos     sharedlog.LSN // everything below has been shown
	taken   []Group
	entries []sharedlog.Entry
	sums    []wire.Sum // of entries
	pull    puller
	final   error
}

// NewReader opens a cursor with valid options. trimPoint returns the trim point of a tag; it is
// called after the cursor has been registered to receive new trim points.
func (h *Hub) NewReader(o sharedlog.ReaderOptions, trimPoint func(sharedlog.Tag) sharedlog.LSN) (*Cursor, error) {
	c := newCursor(h, o)
	if err := h.subscribe(c); err != nil {
		return nil, err
	}
	for _, t := range c.tags {
		c.trimmed(trimPoint(t))
	}
	return c, nil
}

func newCursor(h *Hub, o sharedlog.ReaderOptions) *Cursor {
	c := &Cursor{
		hub:    h,
		tags:   append([]sharedlog.Tag(nil), o.Tags...),
		until:  o.Until,
		credit: int64(o.Credit),
		ready:  make(chan struct{}, 1),
		pos:    max(o.From, sharedlog.First),
	}
	if c.credit <= 0 {
		c.credit = defaultCredit
	}
	if len(c.tags) > 8 {
		c.set = make(map[sharedlog.Tag]struct{}, len(c.tags))
		for _, t := range c.tags {
			c.set[t] = struct{}{}
		}
	}
	return c
}

// Ready implements sharedlog.Reader.
func (c *Cursor) Ready() <-chan struct{} { return c.ready }

func (c *Cursor) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// join makes the cursor live from an LSN on. The caller holds Hub.mu.
func (c *Cursor) join(from sharedlog.LSN) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live, c.queueFrom = true, from
}

// push queues a group if the cursor is live, or makes the cursor lagging if there is no room. It
// reports whether the reader must be woken. The caller holds Hub.mu.
func (c *Cursor) push(g *Group) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.live {
		return false
	}
	if len(c.queue) > 0 && c.queued+g.Bytes > c.credit || c.hub.readers.full() {
		c.live, c.lost = false, g.First
		return len(c.queue) == 0 // nothing else would wake the reader
	}
	c.queue = append(c.queue, *g)
	c.weigh(g.Bytes)
	return true
}

// weigh adds bytes to the size of the queue, or subtracts them. The caller holds mu.
func (c *Cursor) weigh(bytes int64) {
	c.queued += bytes
	c.hub.readers.queued.Add(bytes)
}

func (c *Cursor) trimmed(before sharedlog.LSN) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trim = max(c.trim, before)
}

func (c *Cursor) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = err
	}
	c.queue, c.live = nil, false
	c.weigh(-c.queued)
	c.signal()
}

// Close implements sharedlog.Reader.
func (c *Cursor) Close() error {
	c.hub.unsubscribe(c)
	c.end(sharedlog.Errorf(sharedlog.KindClosed, "reader"))
	return nil
}

// Next implements sharedlog.Reader.
func (c *Cursor) Next(ctx context.Context) (sharedlog.Batch, error) {
	for {
		b, err := c.TryNext()
		if err != nil || len(b.Entries) > 0 {
			return b, err
		}
		select {
		case <-c.ready:
		case <-ctx.Done():
			return sharedlog.Batch{}, ctx.Err()
		}
	}
}

// TryNext implements sharedlog.Reader.
func (c *Cursor) TryNext() (sharedlog.Batch, error) {
	if c.final != nil {
		return sharedlog.Batch{}, c.final
	}
	clear(c.entries)
	c.entries, c.sums = c.entries[:0], c.sums[:0]
	if err := c.advance(); err != nil {
		c.final = err
		return sharedlog.Batch{}, err
	}
	return sharedlog.Batch{Entries: c.entries, Frontier: c.pos}, nil
}

// Sums returns the checksums of the entries of the last batch.
func (c *Cursor) Sums() []wire.Sum { return c.sums }

// advance delivers the next entries, or only a higher pos.
func (c *Cursor) advance() error {
	if c.until != 0 && c.pos >= c.until {
		return io.EOF
	}
	for {
		// Load this before take looks at the queue: all groups below it are then in the queue.
		published := c.hub.Tail()
		frontier, rest, err := c.take(published)
		if err != nil {
			return err
		}
		if frontier == 0 {
			done, err := c.pullOnce(rest)
			if err != nil || done {
				return err
			}
			continue
		}
		for i := range c.taken {
			if err := c.show(&c.taken[i]); err != nil {
				return err
			}
		}
		clear(c.taken)
		c.pos = max(c.pos, c.bounded(frontier))
		if rest > 0 {
			c.hub.rejoin(c)
		}
		if rest > 0 || c.pos == c.until {
			c.signal()
		}
		return nil
	}
}

// take moves the queue's groups below published to c.taken and returns the frontier that they
// reach; rest > 0 means that the cursor lags from there on. Or it returns frontier 0: everything
// below rest must be pulled first.
func (c *Cursor) take(published sharedlog.LSN) (frontier, rest sharedlog.LSN, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return 0, 0, c.ended
	}
	if c.pos < c.queueFrom {
		if c.trim > c.pos {
			return 0, 0, c.errTrimmed()
		}
		return 0, c.queueFrom, nil
	}
	frontier = max(published, c.queueFrom)
	if !c.live && c.lost <= frontier {
		frontier, rest = c.lost, c.lost
	}
	n := len(c.queue)
	for n > 0 && c.queue[n-1].First >= frontier {
		n--
	}
	at := max(c.pos, frontier)
	if n > 0 {
		// A cursor may start ahead of the tail, inside a group.
		at = max(c.pos, c.queue[0].First)
	}
	if c.trim > at {
		return 0, 0, c.errTrimmed()
	}
	if n == len(c.queue) {
		c.taken, c.queue = c.queue, c.taken[:0]
		c.weigh(-c.queued)
		return frontier, rest, nil
	}
	c.taken = append(c.taken[:0], c.queue[:n]...)
	for i := range c.taken {
		c.weigh(-c.taken[i].Bytes)
	}
	left := copy(c.queue, c.queue[n:])
	clear(c.queue[left:])
	c.queue = c.queue[:left]
	return frontier, rest, nil
}

func (c *Cursor) errTrimmed() error {
	return sharedlog.Errorf(sharedlog.KindTrimmed, "reader at %d: a tag that it follows begins at %d; begin there", c.pos, c.trim)
}

// pullOnce reads one batch of the groups below upto with the index. done is false if there was
// nothing.
func (c *Cursor) pullOnce(upto sharedlog.LSN) (done bool, err error) {
	upto = c.bounded(upto)
	groups, frontier, err := c.pull.next(c.hub, c.tags, c.pos, upto, c.credit)
	for tries := 1; errors.Is(err, sharedlog.ErrTrimmed); tries++ {
		// A segment was deleted after the index had returned it: below a trim point, or with the
		// replica, or all that this cursor may need of it lies below its position. In the last case
		// the index does not return it again.
		if err := c.passed(); err != nil {
			return false, err
		}
		if tries == pullTries {
			return false, sharedlog.Errorf(sharedlog.KindCorrupt, "reader at %d: the index names a segment that is gone, though no tag is trimmed there: %v", c.pos, err)
		}
		groups, frontier, err = c.pull.next(c.hub, c.tags, c.pos, upto, c.credit)
	}
	if err != nil {
		return false, err
	}
	// The index does not return what was deleted before the query, so check the trim points:
	// cursors learn of them before anything is deleted.
	if err := c.passed(); err != nil {
		return false, err
	}
	for i := range groups {
		if err := c.show(&groups[i]); err != nil {
			return false, err
		}
	}
	c.pos = max(c.pos, min(frontier, upto))
	if len(c.entries) > 0 || c.pos == c.until {
		c.signal() // there may be more
		return true, nil
	}
	return false, nil
}

// passed returns an error if the cursor has ended or is below a trim point.
func (c *Cursor) passed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended != nil:
		return c.ended
	case c.trim > c.pos:
		return c.errTrimmed()
	}
	return nil
}

func (c *Cursor) bounded(lsn sharedlog.LSN) sharedlog.LSN {
	if c.until != 0 {
		return min(lsn, c.until)
	}
	return lsn
}

// show appends the entries of a group that match and lie in [pos, until).
func (c *Cursor) show(g *Group) error {
	for i := range g.Records {
		lsn := g.First + sharedlog.LSN(i)
		if lsn < c.pos || (c.until != 0 && lsn >= c.until) || !c.follows(g.Records[i].Tags) {
			continue
		}
		sum := wire.SumOf(g.Sums, i)
		c.entries = append(c.entries, sharedlog.Entry{LSN: lsn, Record: g.Records[i]})
		c.sums = append(c.sums, sum)
	}
	return nil
}

func (c *Cursor) follows(tags []sharedlog.Tag) bool {
	for _, t := range tags {
		if c.set != nil {
			if _, ok := c.set[t]; ok {
				return true
			}
			continue
		}
		for _, f := range c.tags {
			if f == t {
				return true
			}
		}
	}
	return false
}
