package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"tailrace.dev/tailrace/sharedlog"
)

// task is a running user of the log.
type task struct {
	w    *World
	id   int
	plan Task
	user *user
	rng  *rand.Rand
	life int // counts its starts: it restarts in each process
	left int // operations to do
}

func tagOf(i int) sharedlog.Tag { return sharedlog.Tag(fmt.Sprint("t", i)) }

func keyOf(i int) string { return fmt.Sprint("k", i) }

func (t *task) tags() (tags []sharedlog.Tag) {
	for _, i := range t.plan.Tags {
		tags = append(tags, tagOf(i))
	}
	return tags
}

func (t *task) who() string { return fmt.Sprintf("%s%d", t.plan.Kind, t.id) }

// run works until its operations are done, or the run's users must stop.
func (t *task) run(stop context.Context) {
	t.left = t.plan.Ops
	wait(ms(t.plan.StartMs), stop, stop)
	for stop.Err() == nil && (t.left > 0 || t.plan.Kind == taskReader) {
		log, alive := t.user.get(stop)
		if log == nil {
			return
		}
		t.life++
		// Answers to a killed process do not count.
		ctx, cancel := context.WithCancel(alive)
		unhook := context.AfterFunc(stop, func() {})
		switch t.plan.Kind {
		case taskWriter:
			t.write(ctx, stop, log, fmt.Sprintf("w%d.%d", t.id, t.life), sharedlog.Condition{})
		case taskInstance:
			t.instance(ctx, stop, log)
		case taskReader:
			t.read(ctx, stop, log)
		case taskTrimmer:
			t.each(ctx, stop, func() { t.trim(ctx, log) })
		case taskKeys:
			t.each(ctx, stop, func() { t.key(ctx, log) })
		case taskTail:
			t.each(ctx, stop, func() { t.tail(ctx, log) })
		case taskLast:
			t.each(ctx, stop, func() { t.last(ctx, log) })
		}
		unhook()
		cancel()
		if alive.Err() == nil {
			t.pause(stop, ctx)
		}
	}
}

// pause waits for the gap between two operations.
func (t *task) pause(stop, ctx context.Context) {
	gap := ms(t.plan.GapMs) * 2
	wait(time.Duration(t.rng.Int64N(int64(gap)+int64(time.Millisecond))), stop, ctx)
}

func wait(d time.Duration, stop, ctx context.Context) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stop.Done():
	case <-ctx.Done():
	}
}

// each makes one operation after another.
func (t *task) each(ctx, stop context.Context, op func()) {
	for ctx.Err() == nil && stop.Err() == nil && t.left > 0 {
		t.left--
		op()
		t.pause(stop, ctx)
	}
}

// flight is a group in flight.
type flight struct {
	g       sharedlog.Group
	size    []int
	group   *group
	pending *sharedlog.Pending
}

func (f *flight) send(t *task, log sharedlog.Log) {
	g := f.g
	g.Records = slices.Clone(g.Records)
	for i := range g.Records { // the log owns the group's records
		g.Records[i].Data = dataOf(g.Writer, g.Number, i, f.size[i])
	}
	f.group = t.w.truth.sending(&g)
	defer t.w.begins("%s waits for room to append %d", g.Writer, g.Number)()
	f.pending = log.Append(g)
}

// write appends groups under a name, several in flight, until its operations are done, it must take
// another name, its process has ended, or its appends have no effect any more.
func (t *task) write(ctx, stop context.Context, log sharedlog.Log, name string, cond sharedlog.Condition) (last *flight) {
	var flying []*flight
	next := uint64(1)
	for {
		for len(flying) < t.plan.Flight && t.left > 0 && (t.plan.Anew == 0 || next <= uint64(t.plan.Anew)) && ctx.Err() == nil && stop.Err() == nil {
			f := t.draw(name, next, cond)
			next++
			t.left--
			f.send(t, log)
			flying = append(flying, f)
			last = f
			if t.rng.IntN(t.plan.Flight) == 0 {
				t.pause(stop, ctx)
			}
		}
		if len(flying) == 0 {
			return last
		}
		f := flying[0]
		o := t.outcome(ctx, f)
		switch o {
		case refused:
			// This group is certainly not in the log, and none after it: send all of them again.
			for _, later := range flying[1:] {
				if t.outcome(ctx, later) == acked {
					t.w.fail("chains", "%s was acknowledged, though %s before it was refused: %v", later.group, f.group, f.group.why)
				}
			}
			wait(20*time.Millisecond, stop, ctx)
			for _, again := range flying {
				if ctx.Err() != nil {
					return last
				}
				if o := again.group.outcome; o == refused {
					again.send(t, log)
				}
			}
			if t.w.calm() && t.w.full() {
				return last // the disk of its home may stay full for the whole run
			}
			continue
		case void, unknown:
			for _, later := range flying[1:] {
				t.outcome(ctx, later)
			}
			return last
		}
		flying = flying[1:]
	}
}

// draw draws a group.
func (t *task) draw(name string, number uint64, cond sharedlog.Condition) *flight {
	f := &flight{g: sharedlog.Group{Writer: name, Number: number, If: cond}}
	for range 1 + t.rng.IntN(3) {
		tags := t.tags()
		t.rng.Shuffle(len(tags), func(i, j int) { tags[i], tags[j] = tags[j], tags[i] })
		tags = tags[:1+t.rng.IntN(len(tags))]
		f.g.Records = append(f.g.Records, sharedlog.Record{Tags: tags})
		f.size = append(f.size, t.rng.IntN(2*t.plan.Size))
	}
	return f
}

// outcome waits for the outcome of a group and records it.
func (t *task) outcome(ctx context.Context, f *flight) outcome {
	if f.group.outcome != waiting {
		return f.group.outcome
	}
	first, err := f.pending.Wait(ctx)
	o := acked
	switch kind := sharedlog.KindOf(err); {
	case ctx.Err() != nil: // the process was killed: it gets no answer
		o, err = unknown, ctx.Err()
	case err == nil:
	case kind == sharedlog.KindConditionFailed:
		o = void
	case kind == sharedlog.KindFull, kind == sharedlog.KindReadOnly, kind == sharedlog.KindOutOfOrder, kind == sharedlog.KindSealed, kind == sharedlog.KindClosed:
		o = refused
	case kind == sharedlog.KindUnknown:
		o = unknown
	default:
		t.w.fail("errors", "%s %d: %v", f.g.Writer, f.g.Number, err)
		o = unknown
	}
	t.w.story.count("append " + o.String())
	if o != acked {
		t.w.story.printf(t.user.name, "%s %d: %s: %v", f.g.Writer, f.g.Number, o, err)
	}
	t.w.truth.answered(f.group, o, first, err)
	return o
}

// instance takes a key over from its present holder, reads what its predecessor has done up to
// there, and appends under it.
func (t *task) instance(ctx, stop context.Context, log sharedlog.Log) {
	key := keyOf(t.plan.Key)
	value := fmt.Sprintf("i%d.%d", t.id, t.life)
	old, err := t.w.get(ctx, log, key, t.id)
	if err != nil {
		return
	}
	place, err := t.w.set(ctx, log, key, old, value, t.id)
	if err != nil {
		return // another one was faster, or the outcome is unknown
	}
	// Everything its predecessors ever did lies below: it reads that.
	r := t.w.open(log, t.who()+" at its beginning", sharedlog.ReaderOptions{Tags: t.tags(), From: t.w.truth.asked(t.tags()), Until: place, Credit: 1000})
	if r != nil {
		r.drain(ctx)
		r.close()
	}
	t.write(ctx, stop, log, value, sharedlog.Condition{Key: key, Value: []byte(value)})
}

// trim trims one of its tags up to some place below the tail.
func (t *task) trim(ctx context.Context, log sharedlog.Log) {
	tail, err := t.w.tail(ctx, log)
	if err != nil || tail < 3 {
		return
	}
	tags := t.tags()
	tag := tags[t.rng.IntN(len(tags))]
	before := tail - sharedlog.LSN(t.rng.Int64N(int64(min(tail, 200))))
	if t.rng.IntN(4) == 0 {
		before = tail
	}
	t.w.truth.trimming(tag, before)
	t.w.story.printf(t.user.name, "trims %s below %d", tag, before)
	defer t.w.begins("%s trims %s below %d", t.who(), tag, before)()
	if err := log.Trim(ctx, tag, before); err == nil {
		t.w.truth.trimmedTo(tag, before)
		t.w.story.count("trim")
	} else if ctx.Err() == nil {
		t.w.fail("errors", "trim %s below %d of a log that reaches to %d: %v", tag, before, tail, err)
	}
}

func (t *task) key(ctx context.Context, log sharedlog.Log) {
	key := keyOf(t.plan.Key)
	old, err := t.w.get(ctx, log, key, t.id)
	if err != nil || t.rng.IntN(3) == 0 {
		return
	}
	if t.rng.IntN(5) == 0 {
		old = "what it never was"
	}
	if _, err := t.w.set(ctx, log, key, old, fmt.Sprintf("v%d.%d.%d", t.id, t.life, t.left), t.id); err == nil {
		t.w.story.count("key set")
	}
}

func (t *task) tail(ctx context.Context, log sharedlog.Log) { _, _ = t.w.tail(ctx, log) }

func (t *task) last(ctx context.Context, log sharedlog.Log) {
	tail, err := t.w.tail(ctx, log)
	if err != nil {
		return
	}
	tags := t.tags()
	tag := tags[t.rng.IntN(len(tags))]
	below := tail - sharedlog.LSN(t.rng.Int64N(int64(min(tail, 20))))
	defer t.w.begins("%s asks for the last of %s below %d", t.who(), tag, below)()
	e, ok, err := log.Last(ctx, tag, below)
	l := &last{tag: tag, below: below, who: t.who()}
	switch {
	case ctx.Err() != nil:
		return
	case sharedlog.KindOf(err) == sharedlog.KindTrimmed:
		t.w.story.count("last trimmed")
		if t.w.truth.asked([]sharedlog.Tag{tag}) == 0 {
			t.w.fail("trims", "Last of %s, which no client has trimmed: %v", tag, err)
		}
		return
	case err != nil:
		t.w.damage("Last of "+string(tag), err)
		return
	case ok:
		t.w.truth.shown(&e, t.who())
		if e.LSN >= below || !slices.Contains(e.Tags, tag) {
			t.w.fail("last", "%s was told that the last record of %s below %d is at %d, under %v", l.who, tag, below, e.LSN, e.Tags)
		}
		l.lsn = e.LSN
	}
	t.w.truth.mu.Lock()
	defer t.w.truth.mu.Unlock()
	t.w.truth.ops++
	t.w.truth.lasts = append(t.w.truth.lasts, l)
}

// tail reads the tail.
func (w *World) tail(ctx context.Context, log sharedlog.Log) (sharedlog.LSN, error) {
	x := &tail{from: w.truth.now()}
	defer w.begins("asks for the tail")()
	lsn, err := log.Tail(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		w.unexpected(ctx, "Tail", err)
		return 0, err
	}
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	x.lsn, x.to = lsn, w.truth.tick()
	w.truth.ops++
	w.truth.tails = append(w.truth.tails, x)
	return lsn, nil
}

// get reads a key.
func (w *World) get(ctx context.Context, log sharedlog.Log, key string, who int) (string, error) {
	k := &keyOp{client: who, key: key, get: true, from: w.truth.now()}
	defer w.begins("task %d gets %s", who, key)()
	c, err := log.Get(ctx, key)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		w.unexpected(ctx, "Get", err)
		return "", err
	}
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	k.value, k.to = string(c.Value), w.truth.tick()
	w.truth.ops++
	w.truth.keys = append(w.truth.keys, k)
	return k.value, nil
}

// set changes a key and returns the place of the change.
func (w *World) set(ctx context.Context, log sharedlog.Log, key, old, value string, who int) (sharedlog.LSN, error) {
	k := &keyOp{client: who, key: key, old: old, new: value, from: w.truth.now()}
	defer w.begins("task %d sets %s to %s", who, key, value)()
	c, err := log.CompareAndSet(ctx, key, []byte(old), []byte(value))
	if ctx.Err() != nil {
		c, err = sharedlog.Change{}, ctx.Err()
	}
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	k.value, k.ok, k.to = string(c.Value), err == nil, w.truth.tick()
	w.truth.ops++
	switch {
	case err == nil:
		w.truth.changes = append(w.truth.changes, &change{key: key, value: value, old: old, place: c.Place, from: k.from, to: k.to})
	case sharedlog.KindOf(err) == sharedlog.KindConflict:
	case sharedlog.KindOf(err) == sharedlog.KindUnknown, ctx.Err() != nil:
		k.unknown = true
	default:
		k.unknown = true
		w.unexpected(ctx, "CompareAndSet", err)
	}
	w.truth.keys = append(w.truth.keys, k)
	return c.Place, err
}

// unexpected checks an error of an operation that waits until it can be answered.
func (w *World) unexpected(ctx context.Context, what string, err error) {
	if ctx.Err() != nil || sharedlog.KindOf(err) == sharedlog.KindClosed || errors.Is(err, context.Canceled) {
		return
	}
	w.fail("errors", "%s: %v", what, err)
}

// damage checks an error that reports damaged or unreadable data.
func (w *World) damage(what string, err error) {
	w.story.printf("", "%s: %v", what, err)
	switch sharedlog.KindOf(err) {
	case sharedlog.KindClosed:
		return
	case sharedlog.KindCorrupt:
		w.story.count("corrupt")
		if w.broken() {
			return
		}
	}
	w.fail("errors", "%s: %v", what, err)
}
