package client

import (
	"context"
	"io"
	"math"
	"sync"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

const (
	defaultCredit = 1 << 20
	// everything is the frontier of a cursor that has received all records of its shard.
	everything sharedlog.LSN = math.MaxUint64
)

// reader implements sharedlog.Reader: it merges the shards by LSN.
type reader struct {
	l     *Log
	opt   sharedlog.ReaderOptions
	tags  []string
	ready chan struct{}

	mu     sync.Mutex
	order  []*part // by shard
	ended  error
	closed bool

	// Used only by the goroutine that reads:
	pos     sharedlog.LSN // everything below has been returned
	entries []sharedlog.Entry
	final   error
	known   int // number of shards when the parts were last updated
	sealed  sharedlog.LSN

	trimmings uint64 // value of shards.trimmings when trim was computed
	trim      sharedlog.LSN
	// left is the error to return because a shard was forgotten before the reader had read it to
	// its end.
	left error
}

// part is a reader's cursor on one shard. Guarded by reader.mu, except for fields that never
// change.
type part struct {
	r     *reader
	id    uint64
	shard uint32

	queue    []sharedlog.Entry
	next     int           // index in queue
	queued   int64         // bytes in queue. Invariant: queued + used + what is in flight + what the server may still send = credit
	frontier sharedlog.LSN // everything below has been received
	// opened is a bound that the replica sent with frontier: at most so many shards were opened
	// below it; 0: none received yet. It proves nothing if frontier is everything: no replica knows
	// how many shards will be opened.
	opened uint64
	// lost is set if records of the shard from frontier on were given up and the reader must report
	// it.
	lost         error
	used         int64          // bytes returned and not yet credited
	corrupt      map[string]int // failures for damage since the last records arrived, by node
	corruptSince time.Time      // time of the first failure
}

// NewReader implements sharedlog.Log.
func (l *Log) NewReader(o sharedlog.ReaderOptions) (sharedlog.Reader, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := l.usable(); err != nil {
		return nil, err
	}
	if o.Credit <= 0 {
		o.Credit = defaultCredit
	}
	o.Tags = append([]sharedlog.Tag(nil), o.Tags...)
	r := &reader{l: l, opt: o, ready: make(chan struct{}, 1)}
	all, sealed, _ := l.shards.list() // before begins: it then covers the trims that made a shard be forgotten
	begins := r.begins()
	switch {
	case o.From == sharedlog.Oldest:
		r.pos = max(sharedlog.First, l.shards.bottom(), begins)
	case o.BelowFloor:
		r.pos = max(sharedlog.First, l.shards.bottom(), o.From)
	default:
		r.pos = o.From
	}
	for _, t := range o.Tags {
		r.tags = append(r.tags, string(t))
	}
	if err := l.reading.add(r); err != nil {
		return nil, err
	}
	if begins > r.pos {
		r.ended = errTrimmed(r.pos, begins)
		r.signal()
		return r, nil
	}
	r.look(all, sealed)
	return r, nil
}

// begins returns the LSN at which all of the reader's tags begin, as far as this process knows.
func (r *reader) begins() (at sharedlog.LSN) {
	if !r.opt.BelowFloor {
		at = r.l.shards.bottom()
	}
	for _, t := range r.opt.Tags {
		at = max(at, r.l.shards.begins(t))
	}
	return at
}

func errTrimmed(pos, begins sharedlog.LSN) error {
	return sharedlog.Errorf(sharedlog.KindTrimmed, "reader at %d: records of its tags below %d may have been trimmed; begin there", pos, begins)
}

// Ready implements sharedlog.Reader.
func (r *reader) Ready() <-chan struct{} { return r.ready }

func (r *reader) signal() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// end ends the reader with err.
func (r *reader) end(err error) {
	r.mu.Lock()
	if r.ended == nil {
		r.ended = err
	}
	r.mu.Unlock()
	r.signal()
}

// Close implements sharedlog.Reader.
func (r *reader) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	parts := r.order
	for _, p := range parts {
		p.forget()
	}
	r.mu.Unlock()
	r.end(sharedlog.Errorf(sharedlog.KindClosed, "reader"))
	for _, p := range parts {
		r.l.reading.drop(p)
	}
	r.l.reading.remove(r)
	return nil
}

// Next implements sharedlog.Reader.
func (r *reader) Next(ctx context.Context) (sharedlog.Batch, error) {
	for {
		b, err := r.TryNext()
		if err != nil || len(b.Entries) > 0 {
			return b, err
		}
		select {
		case <-r.ready:
		case <-ctx.Done():
			return sharedlog.Batch{}, ctx.Err()
		}
	}
}

// TryNext implements sharedlog.Reader.
func (r *reader) TryNext() (sharedlog.Batch, error) {
	if r.final != nil {
		return sharedlog.Batch{}, r.final
	}
	clear(r.entries)
	r.entries = r.entries[:0]
	if r.opt.Until != 0 && r.pos >= r.opt.Until {
		r.final = io.EOF
		return sharedlog.Batch{}, io.EOF
	}
	all, sealed, _ := r.l.shards.list()
	r.look(all, sealed)
	r.mu.Lock()
	if r.ended == nil {
		r.ended = r.left
	}
	if r.ended != nil {
		r.final = r.ended
		r.mu.Unlock()
		return sharedlog.Batch{}, r.final
	}
	frontier := r.frontier()
	if err := r.trimmed(frontier); err != nil {
		r.final = err
		r.mu.Unlock()
		return sharedlog.Batch{}, err
	}
	r.merge(frontier)
	r.pos = max(r.pos, frontier)
	lost := r.lost()
	credits := r.credits()
	r.mu.Unlock()
	for _, p := range credits {
		r.l.reading.credit(p)
	}
	r.l.sawTail(r.pos)
	if r.opt.Until != 0 && r.pos >= r.opt.Until {
		r.pos = r.opt.Until
		r.signal()
	} else if lost != nil {
		if len(r.entries) == 0 {
			r.final = lost
			return sharedlog.Batch{}, lost
		}
		r.signal()
	}
	return sharedlog.Batch{Entries: r.entries, Frontier: r.pos}, nil
}

// look opens a cursor on each shard in all that may hold something at or above the position, and
// drops the cursors on shards that no longer can. all contains every shard that was opened below
// sealed.
func (r *reader) look(all []*logpb.Shard, sealed sharedlog.LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if len(all) != r.known || sealed != r.sealed {
		for _, sh := range all[min(r.known, len(all)):] {
			if sh == nil {
				// The shard was opened and forgotten without a cursor of this reader. All its
				// records were trimmed, and they may have been at or above the position. (NewReader
				// has checked the shards that were gone when the reader was opened.)
				if at := r.begins(); r.known > 0 && at > r.pos {
					r.left = errTrimmed(r.pos, at)
				}
				continue
			}
			if past(sh, r.pos) || r.opt.Until != 0 && sharedlog.LSN(sh.GetOpened()) >= r.opt.Until {
				continue
			}
			from := max(r.pos, sharedlog.LSN(sh.GetOpened()))
			p := &part{r: r, shard: sh.GetId(), frontier: from}
			r.order = append(r.order, p)
			if !allLost(sh) { // else no node may be left to ask
				r.l.reading.open(p, from)
			}
		}
		r.known, r.sealed = len(all), sealed
	}
	kept := r.order[:0]
	for _, p := range r.order {
		sh := all[p.shard-1]
		if allLost(sh) {
			p.gone(sharedlog.Lost(p.shard, sh.GetLost(), sharedlog.LSN(sh.GetOpened()), sharedlog.LSN(sh.GetSealedAt())))
		}
		if p.next == len(p.queue) && (sh == nil || past(sh, p.frontier)) {
			if at := r.begins(); sh == nil && at > p.frontier {
				// All records of the shard were trimmed; the reader may not have returned some.
				r.left = errTrimmed(p.frontier, at)
			}
			p.forget()
			r.l.reading.drop(p)
			continue
		}
		kept = append(kept, p)
	}
	clear(r.order[len(kept):])
	r.order = kept
}

// past reports whether a shard holds nothing at or above an LSN.
func past(sh *logpb.Shard, lsn sharedlog.LSN) bool {
	return sh.GetSealed() && (sh.GetLength() == 0 || sharedlog.LSN(sh.GetSealedAt()) <= lsn)
}

// allLost reports whether all records of a shard were given up.
func allLost(sh *logpb.Shard) bool { return sh.GetLost() > 0 && sh.GetLost() == sh.GetLength() }

// gone handles records of the shard from the frontier on that were given up: the reader ends there,
// or skips them. Called with reader.mu held.
func (p *part) gone(err error) {
	if p.r.opt.SkipLost {
		p.frontier = everything
	} else {
		p.lost = err
	}
}

// lost returns the error of a reader that has reached records that were given up, or nil. Called
// with mu held.
func (r *reader) lost() error {
	for _, p := range r.order {
		if p.lost != nil && p.next == len(p.queue) && p.frontier <= r.pos {
			return p.lost
		}
	}
	return nil
}

// frontier returns the LSN below which everything has been received (invariants 1 to 3 of the
// package comment). Called with mu held.
func (r *reader) frontier() sharedlog.LSN {
	lowest := everything
	opened := uint64(math.MaxUint64)
	for _, p := range r.order {
		lowest = min(lowest, p.frontier)
		if p.opened > 0 && p.frontier != everything {
			opened = min(opened, p.opened)
		}
	}
	if lowest == everything {
		// Every shard that this process knows of is sealed. It knows those that were
		// opened before the last seal or snapshot that it has received; later ones begin
		// above.
		lowest = r.sealed
	} else if opened > uint64(r.known) && lowest > r.sealed {
		return r.pos // nothing proves that this process knows all shards opened below lowest
	}
	if r.opt.Until != 0 {
		lowest = min(lowest, r.opt.Until)
	}
	return max(lowest, r.pos)
}

// trimmed returns an error if a record that the reader should return next may have been trimmed: a
// tag begins above it. Called with mu held.
func (r *reader) trimmed(frontier sharedlog.LSN) error {
	if n := r.l.shards.trimmings.Load(); n != r.trimmings {
		r.trimmings = n
		r.trim = max(r.trim, r.begins())
	}
	if r.trim <= r.pos {
		return nil
	}
	next := frontier
	for _, p := range r.order {
		if p.next < len(p.queue) {
			next = min(next, p.queue[p.next].LSN)
		}
	}
	if r.trim <= next {
		return nil
	}
	return errTrimmed(r.pos, r.trim)
}

// merge moves the entries below the frontier from the parts' queues to r.entries, in LSN order.
// Called with mu held.
func (r *reader) merge(frontier sharedlog.LSN) {
	for {
		var first *part
		for _, p := range r.order {
			if p.next < len(p.queue) && p.queue[p.next].LSN < frontier && (first == nil || p.queue[p.next].LSN < first.queue[first.next].LSN) {
				first = p
			}
		}
		if first == nil {
			return
		}
		// Take entries of this part until another shard's entry comes first.
		stop := frontier
		for _, p := range r.order {
			if p != first && p.next < len(p.queue) {
				stop = min(stop, p.queue[p.next].LSN)
			}
		}
		p := first
		for p.next < len(p.queue) && p.queue[p.next].LSN < stop {
			e := &p.queue[p.next]
			r.entries = append(r.entries, *e)
			p.shown(int64(len(e.Data)))
			p.queue[p.next] = sharedlog.Entry{}
			p.next++
		}
		if p.next == len(p.queue) {
			p.queue, p.next = p.queue[:0], 0
		}
	}
}

// credits returns the parts that have enough to credit to their servers. Called with mu held.
func (r *reader) credits() (parts []*part) {
	for _, p := range r.order {
		if p.used > int64(r.opt.Credit)/4 {
			parts = append(parts, p)
		}
	}
	return parts
}

// shown counts bytes that leave the queue for the reader. Called with reader.mu held.
func (p *part) shown(bytes int64) {
	p.queued -= bytes
	p.used += bytes
	p.r.l.queued.Add(-uint64(bytes))
}

// forget drops the queue. Called with reader.mu held.
func (p *part) forget() {
	p.r.l.queued.Add(-uint64(p.queued))
	p.queue, p.next, p.queued = nil, 0, 0
}

// received adds entries, and the frontier that came with them, from the cursor id.
func (p *part) received(id uint64, entries []sharedlog.Entry, frontier sharedlog.LSN, opened uint64) {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	if id != p.id || p.r.closed {
		return // the cursor has moved meanwhile: its new replica sends the entries again
	}
	bytes := int64(0)
	for i := range entries {
		bytes += int64(len(entries[i].Data))
	}
	if len(entries) > 0 {
		p.corrupt = nil
	}
	p.queue = append(p.queue, entries...)
	p.queued += bytes
	p.r.l.queued.Add(uint64(bytes))
	if frontier >= p.frontier {
		p.frontier, p.opened = frontier, opened
	}
	p.r.signal()
}
