package embedded

import (
	"context"

	"tailrace.dev/tailrace/sharedlog"
)

// recovered checks the state of the log after Open.
func (w *World) recovered() {
	t := w.truth
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tail, err := w.log.Tail(ctx)
	if err != nil {
		w.fail("errors", "Tail: %v", err)
		return
	}
	t.lose(tail, w.least)
	w.forgot = true
	w.measure()
	w.tell("life %d: the log is open, its tail is %d", w.life+1, tail)
	for k := range w.plan.Settings.Keys {
		c, err := w.log.Get(ctx, keyName(k))
		if err != nil {
			w.fail("errors", "Get: %v", err)
			return
		}
		t.locked(func() { t.reopened(keyName(k), string(c.Value), w.loss, tail) })
	}
	w.loss = false
	whole := map[sharedlog.Tag]*reading{}
	for i := range w.plan.Settings.Tags {
		tag := tagName(i)
		w.strict(ctx, tag, tail)
		r := w.drain(ctx, "the first reader", tag, sharedlog.Oldest, tail)
		if whole[tag] = r; r == nil {
			continue
		}
		// There are more records after damaged ones, and they must be found.
		for from := r.frontier; from < tail && t.isDamaged(); {
			from++
			if more := w.drain(ctx, "a reader behind damage", tag, from, tail); more != nil {
				from = max(from, more.frontier)
			}
		}
	}
	t.markAbsent(whole, tail)
	t.judge()
}

func (t *truth) isDamaged() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.damaged
}

// drain reads a tag up to the tail; it returns nil if it cannot.
func (w *World) drain(ctx context.Context, who string, tag sharedlog.Tag, from, until sharedlog.LSN) *reading {
	f := w.follow(who, sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tag}, From: from, Until: until})
	if f == nil {
		return nil
	}
	for f.next(ctx) {
	}
	_ = f.r.Close()
	if ctx.Err() != nil {
		w.fail("progress", "%s of %s from %d does not come to %d: it is at %d", who, tag, from, until, f.frontier)
	}
	w.truth.locked(func() {
		if f.frontier < until && !w.truth.dead && !w.truth.damaged && !w.trimming(tag, f.reading) {
			w.truth.fail("contiguous", "%s of %s from %d ends at %d, and the tail was %d", who, tag, from, f.frontier, until)
		}
	})
	return f.reading
}

// trimming reports whether a trim explains that a reading ended. Called with mu held.
func (w *World) trimming(tag sharedlog.Tag, r *reading) bool {
	asked, _ := w.truth.asked([]sharedlog.Tag{tag})
	return r.frontier < asked
}

// strict checks that a trim of an earlier life still holds and that a reader below it gets an
// error.
func (w *World) strict(ctx context.Context, tag sharedlog.Tag, tail sharedlog.LSN) {
	t := w.truth
	var newest, done sharedlog.LSN
	t.locked(func() {
		done = min(t.trim(tag).done, tail)
		for lsn := range t.records {
			if lsn < done && meet(t.tagsAt(lsn), []sharedlog.Tag{tag}) {
				newest = max(newest, lsn)
			}
		}
	})
	if newest == 0 {
		return
	}
	r, err := w.log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tag}, From: newest, Until: newest + 1})
	if err != nil {
		w.fail("errors", "NewReader: %v", err)
		return
	}
	defer r.Close()
	if _, err := r.Next(ctx); sharedlog.KindOf(err) != sharedlog.KindTrimmed && (sharedlog.KindOf(err) != sharedlog.KindCorrupt || !t.isDamaged()) {
		w.fail("trims", "%s was trimmed below %d, and a reader from %d on gets %v", tag, done, newest, err)
	}
}

// progress checks that every operation finishes when the disk has no fault.
func (w *World) progress() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	u := w.user("progress", 0)
	for ok := false; !ok && w.stop.Err() == nil; { // a read-only log checks its disk only at intervals
		wr := u.writer(sharedlog.Condition{})
		g, p := wr.send(1)
		first, err := p.Wait(ctx)
		w.truth.answered(g, first, err)
		if ok = err == nil; !ok && !w.pause(ctx, retry) {
			w.fail("progress", "nothing can be appended: %v", err)
			return
		}
	}
	tail, err := w.log.Tail(ctx)
	if err != nil {
		w.fail("progress", "Tail: %v", err)
		return
	}
	for i := range w.plan.Settings.Tags {
		w.drain(ctx, "a reader of the end", tagName(i), sharedlog.Oldest, tail)
	}
	if err := u.change(ctx); err != nil && sharedlog.KindOf(err) != sharedlog.KindConflict {
		w.fail("progress", "CompareAndSet: %v", err)
	}
}
