package embedded

import (
	"errors"
	"fmt"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/delivery"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

// placed is a group that was written and has no outcome yet.
type placed struct {
	request *request
	loc     segment.Location
}

// scratch is memory that the loop reuses.
type scratch struct {
	frames    []*segment.Frame
	locations []segment.Location
	admitted  []*request
	groups    []delivery.Group
	added     []tagindex.Added
	done      []outcome
}

type outcome struct {
	pending *sharedlog.Pending
	first   sharedlog.LSN
	err     error
}

// run is the loop: it takes the waiting requests, writes and orders them, shows the records to
// readers, and answers. All requests that wait when an iteration starts form one batch, so a busy
// log has large batches and an idle one has no delay.
func (l *Log) run() {
	defer close(l.stopped)
	var batch []*request
	for {
		var ok bool
		if batch, ok = l.queue.take(batch[:0]); !ok {
			break
		}
		if err := l.batch(batch); err != nil {
			l.opt.Logger.Error("the log has failed; open it again", "dir", l.dir, "error", err)
			l.queue.fail(err)
			l.hub.Close(l.queue.failure())
			break
		}
		clear(batch)
	}
	// Requests in flight may or may not be in the log. Some were never written, but a caller cannot
	// tell that from a failure half-way.
	unknown := sharedlog.Errorf(sharedlog.KindUnknown, "the log was closed or failed before the outcome was known")
	for _, w := range l.written {
		w.request.fail(unknown)
	}
	for _, r := range l.asked {
		r.fail(unknown)
	}
	for _, r := range l.queue.rest() {
		r.fail(unknown)
	}
	for _, r := range batch {
		if r != nil && !r.finished() && !r.waits {
			r.fail(unknown)
		}
	}
	for _, ps := range l.repeats {
		for _, p := range ps {
			p.Complete(0, unknown)
		}
	}
}

// finished reports whether the request has been answered.
func (r *request) finished() bool {
	done := r.done
	if r.kind == requestAppend {
		return isClosed(r.pending.Done())
	}
	return isClosed(done)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// batch serves requests in their order. Appends between two metadata changes are written together;
// a change is proposed after everything before it was written and reported. An error is permanent.
func (l *Log) batch(batch []*request) error {
	s := &l.scratch
	s.admitted = s.admitted[:0]
	for _, r := range batch {
		if r.kind == requestAppend {
			l.admit(r)
			continue
		}
		if err := l.write(); err != nil {
			return err
		}
		if err := l.propose(r); err != nil {
			return err
		}
	}
	if err := l.write(); err != nil {
		return err
	}
	if err := l.settle(); err != nil {
		return err
	}
	if l.meta.off < metaRotate {
		return nil
	}
	// The metalog is long but has few groups. A new metalog file needs a new segment (invariant 3).
	if err := l.roll(0); err != nil && sharedlog.KindOf(err) != sharedlog.KindFull {
		return err
	}
	return nil
}

// admit decides what to do with a group (package storage, Writers).
func (l *Log) admit(r *request) {
	g := &r.group
	switch v := l.writers.Admit(g.Writer, g.Number, g.Number == 1); v.Decision {
	case storage.Append:
		l.scratch.admitted = append(l.scratch.admitted, r)
	case storage.Pending:
		k := repeat{g.Writer, g.Number}
		l.repeats[k] = append(l.repeats[k], r.pending)
	case storage.Taken:
		r.pending.Complete(v.First, nil)
	case storage.Void:
		r.pending.Complete(0, errVoid(g))
	case storage.Forgotten:
		r.fail(sharedlog.TakenLongAgo(g.Writer, g.Number))
	case storage.OutOfOrder:
		r.fail(sharedlog.OutOfOrder(g.Writer, g.Number, v.Want))
	case storage.Sealed:
		r.fail(sharedlog.Errorf(sharedlog.KindSealed, "shard %d", l.shard))
	}
}

func errVoid(g *sharedlog.Group) error {
	return sharedlog.Errorf(sharedlog.KindConditionFailed, "writer %q: metadata key %q does not hold what group %d (or one before it) is conditional on",
		g.Writer, g.If.Key, g.Number)
}

// metaRoom bounds the bytes of one batch's metalog entries without its changes.
const metaRoom = 64 << 10

// write writes the admitted groups and reports them. If the disk is full, it refuses the groups
// that were not written; other errors are permanent.
func (l *Log) write() error {
	s := &l.scratch
	for len(s.admitted) > 0 {
		if why := l.reserve.Refusal(); why != "" {
			return l.refuse(sharedlog.Errorf(sharedlog.KindReadOnly, "%s", why))
		}
		if err := l.meta.ensure(metaReserve + metaRoom); err != nil {
			return l.refuse(err)
		}
		n, room := 0, l.appender.Room()
		s.frames = s.frames[:0]
		for _, r := range s.admitted {
			if room -= int64(r.frame.Size()); room < 0 {
				break
			}
			s.frames = append(s.frames, &r.frame)
			n++
		}
		if n == 0 {
			if err := l.roll(s.admitted[0].frame.Size()); err != nil {
				return l.refuse(err)
			}
			continue
		}
		if cap(s.locations) < n {
			s.locations = make([]segment.Location, n*2)
		}
		locs := s.locations[:n]
		written, err := l.appender.Append(l.length, s.frames, locs)
		bytes := int64(0)
		for i, r := range s.admitted[:written] {
			g := &r.group
			records := uint64(len(g.Records))
			l.order.Hold(storage.Head{Position: l.length, Records: records, Writer: g.Writer, Number: g.Number, If: g.If})
			l.written = append(l.written, placed{r, locs[i]})
			l.length += records
			l.stats.written.Add(uint64(r.frame.Size()))
			bytes += int64(r.frame.Size())
		}
		l.reserve.Wrote(bytes)
		clear(s.frames)
		rest := copy(s.admitted, s.admitted[written:])
		clear(s.admitted[rest:])
		s.admitted = s.admitted[:rest]
		l.core.Report(sequencer.Report{Shard: l.shard, Incarnation: l.incarnation(), Length: l.length})
		if err != nil {
			return l.refuse(err)
		}
	}
	return nil
}

// incarnation returns the primary's incarnation, which is the shard's here.
func (l *Log) incarnation() uint64 { return uint64(l.shard) }

// refuse answers the admitted groups with ErrFull or ErrReadOnly and releases their numbers, last
// first. It returns errors of other kinds.
func (l *Log) refuse(err error) error {
	if k := sharedlog.KindOf(err); k != sharedlog.KindFull && k != sharedlog.KindReadOnly {
		return err
	}
	s := &l.scratch
	for i := len(s.admitted) - 1; i >= 0; i-- {
		r := s.admitted[i]
		l.writers.Retract(r.group.Writer, r.group.Number)
		r.fail(err)
		k := repeat{r.group.Writer, r.group.Number}
		for _, p := range l.repeats[k] {
			p.Complete(0, err)
		}
		delete(l.repeats, k)
	}
	clear(s.admitted)
	s.admitted = s.admitted[:0]
	return nil
}

// propose passes a change or a trim to the sequencer. Changes must leave the reserve untouched;
// trims may use it and, when it is used up, the ballast (pitfall G9).
func (l *Log) propose(r *request) error {
	need := int64(metaRoom + 2*len(r.entry.Key) + int(r.bytes))
	if r.kind == requestChange {
		if l.reserve.Given() { // the room of the ballast is for trims
			r.fail(sharedlog.Errorf(sharedlog.KindReadOnly, "%s", l.reserve.Refusal()))
			return nil
		}
		if e := &r.entry; !l.reserve.Cover(l.ballastFor(len(e.Key) + len(e.New) - len(e.Old))) {
			free, _ := l.reserve.Space()
			r.fail(sharedlog.Errorf(sharedlog.KindFull, "the disk of %s has %s free, too little to keep room for a restart with more metadata: make room on it, or trim the log", l.dir, vfs.Size(free)))
			return nil
		}
		need += metaReserve
	}
	err := l.meta.ensure(need)
	if r.kind == requestTrim && sharedlog.KindOf(err) == sharedlog.KindFull && l.reserve.Give() {
		err = l.meta.ensure(need)
	}
	if err != nil {
		if sharedlog.KindOf(err) != sharedlog.KindFull {
			return err
		}
		r.fail(err)
		return nil
	}
	l.core.Propose(r.entry)
	l.asked = append(l.asked, r)
	// The room that ensure made is for one frame, and each change of a batch needs a frame of its
	// own.
	if err := l.settle(); err != nil {
		return err
	}
	l.reserve.Cover(l.ballastFor(0)) // if this fails, trims still pass
	return nil
}

// settle turns everything that was reported and proposed into entries, makes the entries durable,
// applies them, shows the records to readers and answers the requests.
func (l *Log) settle() error {
	if l.opt.Fsync == FsyncAlways && len(l.written) > 0 {
		l.stats.syncs.Add(1)
		if err := l.appender.Sync(); err != nil {
			return err
		}
	}
	entries := l.core.Ready()
	if len(entries) == 0 {
		return nil
	}
	before := l.meta.off
	mark := l.background.mark(l.meta)
	if l.opt.Fsync == FsyncAlways {
		mark = syncMark{synced: before, durable: l.length}
	}
	if err := l.meta.append(metaEntries, func(b []byte) []byte { return appendEntries(b, mark, entries) }); err != nil {
		return err
	}
	l.stats.written.Add(uint64(l.meta.off - before))
	if l.opt.Fsync == FsyncAlways {
		l.stats.syncs.Add(1)
		if err := l.meta.sync(); err != nil {
			return err
		}
	}
	s := &l.scratch
	s.groups, s.added, s.done = s.groups[:0], s.added[:0], s.done[:0]
	answered := l.apply(len(entries))
	if err := l.decide(); err != nil {
		return err
	}
	l.index.Add(s.added)
	l.hub.Publish(s.groups, l.core.State().Tail())
	for i := range s.done {
		s.done[i].pending.Complete(s.done[i].first, s.done[i].err)
	}
	for _, r := range answered {
		if r.kind == requestTrim && r.effect.OK {
			l.background.trimmed(r)
			continue
		}
		close(r.done)
	}
	clear(s.groups)
	clear(s.added)
	clear(s.done)
	return nil
}

// apply applies durable entries and passes their effects to the shard's order.
func (l *Log) apply(n int) (answered []*request) {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	l.core.Advance(n, func(e sequencer.Effect) {
		switch e.Kind {
		case sequencer.KindCut:
			l.stats.cuts.Add(1)
			for _, run := range e.Runs {
				l.order.Cut(run.To, run.First)
			}
			return
		case sequencer.KindChange:
			if e.OK {
				l.order.Change(e.Key, e.Value)
			}
		}
		r := l.asked[len(answered)]
		r.effect = e
		answered = append(answered, r)
	})
	l.asked = l.asked[:copy(l.asked, l.asked[len(answered):])]
	// Before a trim point is visible, the janitor must know that it is not durable yet, and cursors
	// must see it before anything is deleted (pitfall G8).
	l.background.reached(l.meta, l.length, l.core.State().Tail())
	for _, r := range answered {
		if r.kind == requestTrim && r.effect.OK {
			l.hub.Trim(r.effect.Tag, r.effect.Before)
		}
	}
	return answered
}

// decide handles the outcomes of written groups, in order.
func (l *Log) decide() error {
	s := &l.scratch
	n := 0
	for {
		f, ok, err := l.order.Next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		w := l.written[n]
		l.written[n] = placed{}
		n++
		g := &w.request.group
		if f.Number != g.Number || f.Writer != g.Writer {
			return errors.New("the order and the sublog disagree") // a bug: continuing would do more damage
		}
		l.writers.Decide(&f)
		o := outcome{w.request.pending, f.First, nil}
		if !f.Effect {
			o.first, o.err = 0, errVoid(g)
		} else {
			s.groups = append(s.groups, delivery.Group{First: f.First, Records: g.Records, Bytes: w.request.bytes})
		}
		s.done = append(s.done, o)
		if len(l.repeats) > 0 {
			k := repeat{g.Writer, g.Number}
			for _, p := range l.repeats[k] {
				s.done = append(s.done, outcome{p, o.first, o.err})
			}
			delete(l.repeats, k)
		}
		s.added = append(s.added, tagindex.Added{Segment: w.loc.ID, Records: g.Records, Group: tagindex.Group{
			Offset: w.loc.Offset, Size: w.loc.Size, Records: uint32(f.Records), Effect: f.Effect, Position: f.Position, First: f.First,
		}})
		l.stats.groups.Add(1)
		l.stats.records.Add(f.Records)
		l.stats.bytes.Add(uint64(w.request.bytes))
	}
	l.written = l.written[:copy(l.written, l.written[n:])]
	return nil
}

// roll closes the active segment and starts the next one, with a new metalog file (invariant 3).
func (l *Log) roll(need int) error {
	if err := l.settle(); err != nil {
		return err
	}
	if len(l.written) > 0 {
		return fmt.Errorf("%d groups have no outcome at the end of a segment", len(l.written)) // a bug
	}
	full := l.appender.Active()
	if err := l.appender.Roll(need); err != nil {
		return err
	}
	l.index.Begin(l.appender.Active())
	old := l.meta
	begin := func() (*metalog, error) {
		return l.newMetalog(old.number+1, l.appender.Active().Number, l.background.mark(old).durable)
	}
	next, err := begin()
	if sharedlog.KindOf(err) == sharedlog.KindFull && l.reserve.Give() {
		next, err = begin() // otherwise trims could not free what the old file needs
	}
	if err != nil {
		if sharedlog.KindOf(err) != sharedlog.KindFull {
			return err
		}
		// No room for a new file: the old one stays in use and covers both segments.
		l.background.full(full, nil, nil)
		return nil
	}
	if l.opt.Fsync == FsyncAlways { // make its name durable before anything in it is visible
		if err := errors.Join(next.sync(), l.background.syncDir()); err != nil {
			return err
		}
	}
	l.meta = next
	l.reserve.Wrote(metaReserve) // account for its room, which is allocated in advance
	l.background.full(full, old, next)
	return nil
}

// newMetalog creates a metalog file that begins with a snapshot of the present state. Every written
// group must have its outcome.
func (l *Log) newMetalog(number uint64, segment uint32, durable uint64) (*metalog, error) {
	m, err := createMetalog(l.opt.FS, l.dir, number)
	if err != nil {
		return nil, err
	}
	base := metaBase{
		shard: l.shard, segment: segment, position: l.length, durable: durable,
		state: l.core.State().AppendSnapshot(nil), mark: l.order.AppendMark(nil),
	}
	m.segment = segment
	if err := m.append(metaSnapshot, base.append); err != nil {
		return nil, errors.Join(err, m.f.Close(), l.opt.FS.Remove(m.path))
	}
	return m, nil
}
