package server

import (
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/shard"
)

// arrive admits, answers or drops a group. Admitted groups are written by write.
func (r *loop) arrive(a *arrival) {
	s := &r.scratch
	if !r.primary || a.from == nil {
		if len(s.admitted) == 0 {
			s.next = r.core.Length()
		}
		if a.outcome == nil && (a.position != s.next || s.next == r.core.Length() && !r.core.Follows(a.position)) {
			return // a duplicate, or from an abandoned stream
		}
		s.next += uint64(a.body.Records)
		s.admitted = append(s.admitted, *a)
		return
	}
	if a.from.left {
		return
	}
	g := &a.decoded.Group
	if !r.turn.Admit(g, a.decoded.Opens, waiter{a.from, a.seq}) {
		return
	}
	if err := r.takeQuota(a); err != nil {
		r.refuse([]arrival{*a}, err)
		return
	}
	s.admitted = append(s.admitted, *a)
}

// answer sends the answers of a batch.
func (r *loop) answer() {
	for i := range r.turn.Answers {
		a := &r.turn.Answers[i]
		to := a.Caller.from
		to.inflight -= a.Bytes
		to.answer(wire.Answer{Sequence: a.Caller.seq, First: a.First, Err: a.Err})
		if n := len(r.answered); n == 0 || r.answered[n-1] != to {
			r.answered = append(r.answered, to)
		}
	}
	r.turn.Clear()
	for _, a := range r.answered {
		a.flush()
	}
	clear(r.answered)
	r.answered = r.answered[:0]
}

// write appends the admitted groups to the segment, passes them to the backups, and syncs them
// under --fsync always. If the disk is full, it turns away the groups that were not written.
func (r *loop) write() error {
	s := &r.scratch
	if len(s.admitted) == 0 {
		return nil
	}
	defer func() {
		clear(s.admitted)
		s.admitted = s.admitted[:0]
	}()
	p := r.core.Phase()
	if p == storage.PhaseOpen {
		if err := r.noRoom(); err != nil {
			r.turnAway(s.admitted, err)
			return nil
		}
	}
	switch {
	case p == storage.PhaseOpen, p == storage.PhaseSealed && !r.finishing:
		if err := r.start(); err != nil {
			if sharedlog.KindOf(err) != sharedlog.KindFull {
				return err
			}
			r.turnAway(s.admitted, err)
			return nil
		}
	case r.appender == nil:
		return nil // it has become stale in the meantime
	}
	s.frames = s.frames[:0]
	for i := range s.admitted {
		if i == len(s.spare) {
			s.spare = append(s.spare, new(segment.Frame))
		}
		f := s.spare[i]
		f.Adopt(&s.admitted[i].body)
		s.frames = append(s.frames, f)
	}
	if cap(s.locations) < len(s.frames) {
		s.locations = make([]segment.Location, 2*len(s.frames))
	}
	locs := s.locations[:len(s.frames)]
	for from := 0; from < len(s.admitted); {
		n := from + 1
		if s.admitted[from].outcome != nil {
			if s.admitted[from].position != r.copied {
				r.stall() // the group before could not be written
				break
			}
			if err := r.rollPastGap(); err != nil {
				if sharedlog.KindOf(err) != sharedlog.KindFull {
					return err
				}
				r.stall()
				break
			}
			end := s.admitted[from].position + uint64(s.admitted[from].body.Records)
			for ; n < len(s.admitted) && s.admitted[n].outcome != nil && s.admitted[n].position == end; n++ {
				end += uint64(s.admitted[n].body.Records)
			}
		} else {
			for n < len(s.admitted) && s.admitted[n].outcome == nil {
				n++
			}
		}
		bytes := int64(0)
		done, err := r.appender.Append(r.position(&s.admitted[from]), s.frames[from:n], locs[from:n])
		for i := from; i < from+done; i++ {
			r.wrote(&s.admitted[i], locs[i])
			bytes += int64(len(s.admitted[i].body.Bytes))
		}
		r.n.room.Wrote(bytes)
		if err != nil {
			if sharedlog.KindOf(err) != sharedlog.KindFull {
				return err
			}
			r.turnAway(s.admitted[from+done:], err)
			break
		}
		from = n
	}
	r.disk.Index.Add(s.added) // fetched groups, whose outcomes are known
	clear(s.added)
	s.added = s.added[:0]
	r.dirty = true
	r.backlog.Signal()
	if r.n.opt.Fsync == "always" {
		return r.appender.Sync()
	}
	return nil
}

// skip moves a copy past positions whose groups were trimmed.
func (r *loop) skip(from, to uint64) {
	if from == r.copied {
		r.copied, r.skipped = to, true
	}
}

// rollPastGap makes the next group start a segment if positions were skipped before it: the positions in
// a segment have no gaps.
func (r *loop) rollPastGap() error {
	if !r.skipped {
		return nil
	}
	if err := r.appender.Roll(0); err != nil {
		return err
	}
	r.skipped = false
	r.rolled(r.appender.Active())
	return nil
}

// position returns the position of the group.
func (r *loop) position(a *arrival) uint64 {
	if a.outcome != nil {
		return a.position
	}
	return r.core.Length()
}

// rolled notes that the appender has moved to another segment.
func (r *loop) rolled(id segment.ID) {
	r.full = append(r.full, ending{r.active, r.core.Length()})
	r.begin(id)
}

// wrote enters a group that has been written at loc.
func (r *loop) wrote(a *arrival, loc segment.Location) {
	if loc.ID != r.active {
		r.rolled(loc.ID)
	}
	g := &a.decoded.Group
	if a.outcome != nil {
		r.fetched(a, loc)
		r.copied = a.position + uint64(a.body.Records)
		return
	}
	r.bytes += uint64(len(a.body.Bytes))
	if r.primary {
		r.backlog.Add(r.core.Length(), a.body)
	}
	r.turn.Hold(g, shard.Written[waiter]{
		Records: g.Records, Sums: a.decoded.Sums, Bytes: a.dataBytes(), Location: loc, Caller: waiter{a.from, a.seq},
	})
}

// turnAway handles groups that were not written because the disk is full: a primary answers its
// clients with err; a backup stalls, so that the primary sends the groups again when there is room.
func (r *loop) turnAway(groups []arrival, err error) {
	if r.primary {
		r.refuse(groups, err)
	} else {
		r.stall()
	}
}

// refuse answers groups with an error and releases their numbers, in reverse order.
func (r *loop) refuse(groups []arrival, err error) {
	for i := len(groups) - 1; i >= 0; i-- {
		a := &groups[i]
		g := &a.decoded.Group
		if a.from != nil {
			a.from.inflight -= a.dataBytes()
		}
		r.turn.Refuse(g, waiter{a.from, a.seq}, err)
	}
}
