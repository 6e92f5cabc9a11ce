package embedded

import (
	"context"
	"time"

	"tailrace.dev/tailrace/sharedlog"
)

// follower is an open reader.
type follower struct {
	*reading
	w *World
	r sharedlog.Reader
}

// follow opens a reader; nil: the log was closed.
func (w *World) follow(who string, o sharedlog.ReaderOptions) *follower {
	t := w.truth
	t.mu.Lock()
	_, quiet := t.asked(o.Tags)
	t.mu.Unlock()
	r, err := w.log.NewReader(o)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		if sharedlog.KindOf(err) != sharedlog.KindClosed && !t.dead {
			t.fail("errors", "NewReader: %v", err)
		}
		return nil
	}
	f := &follower{w: w, r: r, reading: &reading{who: who, tags: o.Tags, from: o.From, until: o.Until}}
	if o.From == sharedlog.Oldest { // it began at the newest trim point at most
		f.from, _ = t.asked(o.Tags)
		f.settled = quiet
	} else {
		f.frontier = o.From
	}
	t.readings = append(t.readings, f.reading)
	t.counts["readers"]++
	return f
}

func (f *follower) next(ctx context.Context) bool {
	b, err := f.r.Next(ctx)
	if ctx.Err() != nil {
		return false
	}
	return f.w.truth.batch(f.reading, &b, err)
}

// read repeatedly follows some tags for a while: from the oldest record, the tail, or any place,
// fast or slowly.
func (u *user) read() {
	w := u.w
	for u.rest(5 * time.Millisecond) {
		tail, err := w.log.Tail(w.stop)
		if err != nil {
			return
		}
		o := sharedlog.ReaderOptions{Credit: one(u.rng, 0, 1, 2000)}
		for _, i := range u.rng.Perm(w.plan.Settings.Tags)[:1+u.rng.IntN(w.plan.Settings.Tags)] {
			o.Tags = append(o.Tags, tagName(i))
		}
		var asked sharedlog.LSN
		w.truth.locked(func() { asked, _ = w.truth.asked(o.Tags) })
		o.From = one(u.rng, sharedlog.Oldest, sharedlog.First, asked, tail, 1+sharedlog.LSN(u.rng.Int64N(int64(tail))))
		if u.rng.IntN(3) == 0 {
			o.Until = max(o.From, 1) + sharedlog.LSN(u.rng.IntN(300))
		}
		f := w.follow(u.name, o)
		if f == nil {
			return
		}
		ctx, cancel := context.WithTimeout(w.stop, time.Duration(1+u.rng.IntN(200))*time.Millisecond)
		slow := one(u.rng, 0, 0, 20*time.Millisecond)
		for f.next(ctx) && (slow == 0 || u.rest(slow)) {
		}
		cancel()
		_ = f.r.Close()
	}
}
