package mem

import (
	"cmp"
	"context"
	"io"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// reader holds no records: it reads the log's when called.
type reader struct {
	log   *Log
	o     sharedlog.ReaderOptions
	ready chan struct{}

	// Guarded by log.mu:
	pos   sharedlog.LSN // everything below has been shown
	final error
}

// NewReader implements sharedlog.Log.
func (l *Log) NewReader(o sharedlog.ReaderOptions) (sharedlog.Reader, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed()
	}
	o.Tags = slices.Clone(o.Tags)
	o.Credit = cmp.Or(o.Credit, 1<<20)
	if o.From == sharedlog.Oldest {
		for _, t := range o.Tags {
			o.From = max(o.From, l.trims[t])
		}
	}
	r := &reader{log: l, o: o, ready: make(chan struct{}, 1), pos: max(o.From, sharedlog.First)}
	l.readers[r] = struct{}{}
	r.signal()
	return r, nil
}

// wake signals every reader. Called with log.mu held.
func (l *Log) wake() {
	for r := range l.readers {
		r.signal()
	}
}

func (r *reader) signal() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// Ready implements sharedlog.Reader.
func (r *reader) Ready() <-chan struct{} { return r.ready }

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
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.final == nil {
		r.final = r.check()
	}
	if r.final != nil {
		return sharedlog.Batch{}, r.final
	}
	var b sharedlog.Batch
	end := r.log.tail()
	if r.o.Until != 0 {
		end = min(end, r.o.Until)
	}
	for bytes := 0; r.pos < end; r.pos++ {
		rec := &r.log.records[r.pos-1]
		if rec.group == r.pos && bytes >= r.o.Credit {
			break // between two groups
		}
		if rec.effect && slices.ContainsFunc(rec.Tags, r.follows) {
			b.Entries = append(b.Entries, sharedlog.Entry{LSN: r.pos, Record: rec.Record})
			bytes += len(rec.Data)
		}
	}
	if r.pos < end || r.pos == r.o.Until {
		r.signal() // more to show, or the end
	}
	b.Frontier = r.pos
	return b, nil
}

// check returns why the reader shows nothing more, or nil.
func (r *reader) check() error {
	if r.log.closed {
		return errClosed()
	}
	if r.o.Until != 0 && r.pos >= r.o.Until {
		return io.EOF
	}
	for _, t := range r.o.Tags {
		if trim := r.log.trims[t]; r.pos < trim {
			return sharedlog.Errorf(sharedlog.KindTrimmed, "reader at %d: tag %q begins at %d", r.pos, t, trim)
		}
	}
	return nil
}

func (r *reader) follows(t sharedlog.Tag) bool { return slices.Contains(r.o.Tags, t) }

// Close implements sharedlog.Reader.
func (r *reader) Close() error {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.final == nil {
		r.final = sharedlog.Errorf(sharedlog.KindClosed, "reader")
	}
	delete(r.log.readers, r)
	r.signal()
	return nil
}
