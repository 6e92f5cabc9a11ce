package embedded

import (
	"errors"
	"fmt"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/shard"
)

// scratch is memory that the loop reuses.
type scratch struct {
	frames    []*segment.Frame
	locations []segment.Location
	admitted  []*request
}

// loop is the part of a log that only one goroutine uses: its own, until stopped is closed.
type loop struct {
	*Log

	replica *storage.Replica
	turn    *shard.Turn[*sharedlog.Pending]
	asked   []*request // metadata changes and trims that were proposed
	scratch scratch
}

// run takes the waiting requests, writes and orders them, shows the records to
// readers, and answers. All requests that wait when an iteration starts form one batch, so a busy
// log has large batches and an idle one has no delay.
func (l *loop) run() {
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
	for i := range l.turn.Answers {
		l.turn.Answers[i].Caller.Complete(0, unknown)
	}
	l.turn.Clear()
	l.turn.End(unknown)
	l.answer()
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
func (l *loop) batch(batch []*request) error {
	s := &l.scratch
	s.admitted = s.admitted[:0]
	for _, r := range batch {
		if r.kind == requestAppend {
			if l.turn.Admit(&r.group, r.group.Number == 1, r.pending) {
				s.admitted = append(s.admitted, r)
			}
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
	if err := l.commit(); err != nil {
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

// answer completes the appends that the turn has answered.
func (l *loop) answer() {
	for i := range l.turn.Answers {
		a := &l.turn.Answers[i]
		a.Caller.Complete(a.First, a.Err)
	}
	l.turn.Clear()
}

// metaRoom bounds the bytes of one batch's metalog entries without its changes.
const metaRoom = 64 << 10

// write answers the groups that are not admitted, and writes and reports the others. If the disk is
// full, it refuses the groups that were not written; other errors are permanent.
func (l *loop) write() error {
	s := &l.scratch
	l.answer()
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
		written, err := l.appender.Append(l.replica.Length(), s.frames, locs)
		bytes := int64(0)
		for i, r := range s.admitted[:written] {
			l.turn.Hold(&r.group, shard.Written[*sharedlog.Pending]{Records: r.group.Records, Bytes: r.bytes, Location: locs[i], Caller: r.pending})
			l.stats.written.Add(uint64(r.frame.Size()))
			bytes += int64(r.frame.Size())
		}
		l.reserve.Wrote(bytes)
		clear(s.frames)
		rest := copy(s.admitted, s.admitted[written:])
		clear(s.admitted[rest:])
		s.admitted = s.admitted[:rest]
		l.core.Report(sequencer.Report{Shard: l.shard, Incarnation: l.incarnation(), Length: l.replica.Length()})
		if err != nil {
			return l.refuse(err)
		}
	}
	return nil
}

// incarnation returns the primary's incarnation, which is the shard's here.
func (l *loop) incarnation() uint64 { return uint64(l.shard) }

// refuse answers the admitted groups with ErrFull or ErrReadOnly and releases their numbers, last
// first. It returns errors of other kinds.
func (l *loop) refuse(err error) error {
	if k := sharedlog.KindOf(err); k != sharedlog.KindFull && k != sharedlog.KindReadOnly {
		return err
	}
	s := &l.scratch
	for i := len(s.admitted) - 1; i >= 0; i-- {
		r := s.admitted[i]
		l.turn.Refuse(&r.group, r.pending, err)
	}
	l.answer()
	clear(s.admitted)
	s.admitted = s.admitted[:0]
	return nil
}

// propose passes a change or a trim to the sequencer. Changes must leave the reserve untouched;
// trims may use it and, when it is used up, the ballast (pitfall G9).
func (l *loop) propose(r *request) error {
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
	if err := l.commit(); err != nil {
		return err
	}
	l.reserve.Cover(l.ballastFor(0)) // if this fails, trims still pass
	return nil
}

// commit turns everything that was reported and proposed into entries, makes the entries durable,
// applies them, shows the records to readers and answers the requests.
func (l *loop) commit() error {
	if l.opt.Fsync == FsyncAlways && l.turn.Waiting() > 0 {
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
		mark = syncMark{synced: before, durable: l.replica.Length()}
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
	answered := l.apply(len(entries))
	done, err := l.turn.Apply()
	if err != nil {
		return err
	}
	l.stats.groups.Add(uint64(done.Groups))
	l.stats.records.Add(done.Records)
	l.stats.bytes.Add(uint64(done.Bytes))
	l.index.Add(l.turn.Added)
	l.hub.Publish(l.turn.Groups, l.core.State().Tail())
	l.answer()
	for _, r := range answered {
		if r.kind == requestTrim && r.effect.OK {
			l.background.trimmed(r)
			continue
		}
		close(r.done)
	}
	return nil
}

// apply applies durable entries and passes their effects to the shard's order.
func (l *loop) apply(n int) (answered []*request) {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	l.core.Advance(n, func(e sequencer.Effect) {
		switch e.Kind {
		case sequencer.KindCut:
			l.stats.cuts.Add(1)
			for _, run := range e.Runs {
				l.replica.Cut(run.To, run.First)
			}
			return
		case sequencer.KindChange:
			if e.OK {
				l.replica.Change(e.Key, e.Value)
			}
		}
		r := l.asked[len(answered)]
		r.effect = e
		answered = append(answered, r)
	})
	l.asked = l.asked[:copy(l.asked, l.asked[len(answered):])]
	// Before a trim point is visible, the janitor must know that it is not durable yet, and cursors
	// must see it before anything is deleted (pitfall G8).
	l.background.reached(l.meta, l.replica.Length(), l.core.State().Tail())
	for _, r := range answered {
		if r.kind == requestTrim && r.effect.OK {
			l.hub.Trim(r.effect.Tag, r.effect.Before)
		}
	}
	return answered
}

// roll closes the active segment and starts the next one, with a new metalog file (invariant 3).
func (l *loop) roll(need int) error {
	if err := l.commit(); err != nil {
		return err
	}
	if n := l.turn.Waiting(); n > 0 {
		return fmt.Errorf("%d groups have no outcome at the end of a segment", n) // a bug
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
func (l *loop) newMetalog(number uint64, segment uint32, durable uint64) (*metalog, error) {
	m, err := createMetalog(l.opt.FS, l.dir, number)
	if err != nil {
		return nil, err
	}
	base := metaBase{
		shard: l.shard, segment: segment, position: l.replica.Length(), durable: durable,
		state: l.core.State().AppendSnapshot(nil), mark: l.replica.Order().AppendMark(nil),
	}
	m.segment = segment
	if err := m.append(metaSnapshot, base.append); err != nil {
		return nil, errors.Join(err, m.f.Close(), l.opt.FS.Remove(m.path))
	}
	return m, nil
}
