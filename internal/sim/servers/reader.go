package servers

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"tailrace.dev/tailrace/sharedlog"
)

// open opens a reader; nil: the log was closed.
func (w *World) open(log sharedlog.Log, who string, o sharedlog.ReaderOptions) *follower {
	r, err := log.NewReader(o)
	if err != nil {
		if sharedlog.KindOf(err) != sharedlog.KindClosed {
			w.fail("errors", "NewReader: %v", err)
		}
		return nil
	}
	from := max(o.From, sharedlog.First)
	f := &follower{w: w, r: r, reading: &reading{who: who, tags: o.Tags, from: from, until: o.Until, frontier: from}}
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	f.opened = w.truth.tick()
	w.truth.readings = append(w.truth.readings, f.reading)
	return f
}

// follower is an open reader.
type follower struct {
	*reading
	w *World
	r sharedlog.Reader
}

func (f *follower) close() { _ = f.r.Close() }

// next waits for a batch, or, with look, only checks whether there is one. It reports whether the
// reader continues.
func (f *follower) next(ctx context.Context, look bool) bool {
	var b sharedlog.Batch
	var err error
	if look {
		b, err = f.r.TryNext()
	} else {
		b, err = f.r.Next(ctx)
	}
	if ctx.Err() != nil {
		return false // the user was killed or has finished: the result does not count
	}
	w := f.w
	switch kind := sharedlog.KindOf(err); {
	case err == nil:
		f.batch(&b)
		return true
	case errors.Is(err, io.EOF):
		if f.until == 0 {
			w.fail("reader", "%s ends, though it was to continue", f.who)
		}
		f.frontier, f.over = max(f.frontier, f.until), true
	case kind == sharedlog.KindTrimmed:
		w.story.count("reader trimmed")
		if asked := w.truth.asked(f.tags); asked <= f.frontier {
			w.fail("trims", "%s of %v at %d: %v, but no client has trimmed any of them above %d", f.who, f.tags, f.frontier, err, asked)
		}
	default:
		w.damage(f.who, err)
	}
	f.err = err
	return false
}

func (f *follower) batch(b *sharedlog.Batch) {
	w := f.w
	if b.Frontier < f.frontier {
		w.fail("reader", "%s: the frontier goes back from %d to %d", f.who, f.frontier, b.Frontier)
		return
	}
	before := f.frontier
	for i := range b.Entries {
		e := &b.Entries[i]
		switch {
		case e.LSN < before || e.LSN >= b.Frontier || f.until != 0 && e.LSN >= f.until:
			w.fail("reader", "%s, at %d, is shown %d in a batch up to %d", f.who, before, e.LSN, b.Frontier)
			return
		case len(f.seen) > 0 && e.LSN <= f.seen[len(f.seen)-1]:
			w.fail("reader", "%s is shown %d behind %d", f.who, e.LSN, f.seen[len(f.seen)-1])
			return
		case !slices.ContainsFunc(e.Tags, func(t sharedlog.Tag) bool { return slices.Contains(f.tags, t) }):
			w.fail("reader", "%s of %v is shown %d under %v", f.who, f.tags, e.LSN, e.Tags)
			return
		}
		w.truth.shown(e, f.who)
		f.seen = append(f.seen, e.LSN)
	}
	f.frontier = b.Frontier
	w.whole(f, b)
}

// whole checks that a batch has all of a group's records that the reader follows, or none.
func (w *World) whole(f *follower, b *sharedlog.Batch) {
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	w.truth.ops += len(b.Entries)
	in := func(lsn sharedlog.LSN) bool {
		_, ok := slices.BinarySearchFunc(b.Entries, lsn, func(e sharedlog.Entry, lsn sharedlog.LSN) int { return int(int64(e.LSN) - int64(lsn)) })
		return ok
	}
	for i := range b.Entries {
		fact := w.truth.records[b.Entries[i].LSN]
		if fact == nil {
			return // it was checked already
		}
		for j := range fact.group.tags {
			lsn := fact.group.at() + sharedlog.LSN(j)
			other := w.truth.records[lsn]
			if other != nil && lsn >= f.from && (f.until == 0 || lsn < f.until) && other.carries(f.tags) && !in(lsn) {
				w.fail("groups", "%s is shown record %d of %s at %d, but not record %d at %d, in one batch", f.who, fact.index, fact.group, fact.lsn, j, lsn)
				return
			}
		}
	}
}

// drain reads until the reader ends.
func (f *follower) drain(ctx context.Context) {
	defer f.w.begins("%s reads %v from %d to %d", f.who, f.tags, f.from, f.until)()
	for f.next(ctx, false) {
	}
}

// read repeatedly reads for a while, from a place that it draws.
func (t *task) read(ctx, stop context.Context, log sharedlog.Log) {
	o := sharedlog.ReaderOptions{Tags: t.tags(), Credit: t.plan.Credit}
	t.rng.Shuffle(len(o.Tags), func(i, j int) { o.Tags[i], o.Tags[j] = o.Tags[j], o.Tags[i] })
	o.Tags = o.Tags[:1+t.rng.IntN(len(o.Tags))]
	tail, err := t.w.tail(ctx, log)
	if err != nil {
		return
	}
	trimmed := t.w.truth.asked(o.Tags)
	switch t.rng.IntN(6) {
	case 0, 1:
		o.From = 1
	case 2, 3:
		o.From = max(trimmed, 1)
	case 4:
		o.From = 1 + sharedlog.LSN(t.rng.Int64N(int64(tail)))
	default:
		o.From = tail
	}
	if t.rng.IntN(4) == 0 {
		o.Until = tail + sharedlog.LSN(t.rng.IntN(10))
	}
	f := t.w.open(log, t.who(), o)
	if f == nil {
		return
	}
	defer f.close()
	reading, cancel := context.WithTimeout(ctx, ms(1+t.rng.IntN(2*t.plan.LifeMs)))
	defer cancel()
	defer context.AfterFunc(stop, cancel)()
	look := t.rng.IntN(3) == 0
	for f.next(reading, look) {
		if look {
			select {
			case <-f.r.Ready():
			case <-reading.Done():
			}
		}
		if t.plan.SlowMs > 0 {
			wait(ms(t.rng.IntN(2*t.plan.SlowMs)), stop, reading)
		}
	}
	if ctx.Err() == nil {
		wait(time.Millisecond, stop, ctx)
	}
}
