package server

import (
	"errors"
	"fmt"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/delivery"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

// follow hands to the order what the metalog has said.
func (r *replica) follow(a *advance) error {
	seal := false
	for _, e := range a.events {
		if e.GetIndex() <= r.seen {
			continue
		}
		switch w := e.GetWhat().(type) {
		case *logpb.Event_Cut:
			for _, run := range w.Cut.GetRuns() {
				if run.GetShard() == r.id {
					r.core.Cut(run.GetTo(), sharedlog.LSN(run.GetFirst()))
					r.dirty = true
				}
			}
		case *logpb.Event_Change:
			r.core.Change(w.Change.GetKey(), w.Change.GetValue())
			r.dirty = true
		case *logpb.Event_Sealed:
			if w.Sealed.GetId() == r.id {
				seal = true
				r.seal(w.Sealed)
			}
		case *logpb.Event_Placed:
			if w.Placed.GetId() == r.id {
				r.setShard(w.Placed)
			}
		case *logpb.Event_Rescued:
			if w.Rescued.GetId() == r.id {
				r.rescue(w.Rescued)
			}
		}
	}
	r.mu.Lock()
	r.seen = max(r.seen, a.index)
	r.mu.Unlock()
	r.tail = max(r.tail, a.tail)
	if r.core.Phase() == storage.PhaseStale && !r.copying {
		// It may have been sealed before this replica heard of it.
		if sh := r.n.table.shard(r.id); sh != nil && sh.GetSealed() {
			r.setShard(sh)
			r.copyWhole()
		}
	}
	if seal {
		r.dirty = true
	}
	return nil
}

func (r *replica) setPhase() {
	r.mu.Lock()
	r.phase = r.shownPhase()
	r.mu.Unlock()
}

// shownPhase is the core's, but of a replica that is not finished: it is not full yet for
// others, and is told of the metalog on and on, which makes it try again.
func (r *replica) shownPhase() storage.Phase {
	if r.finishing {
		return storage.PhaseSealed
	}
	return r.core.Phase()
}

func (r *replica) setShard(sh *logpb.Shard) {
	r.mu.Lock()
	r.shard = sh
	r.mu.Unlock()
}

// incarnation is of the process that opened the shard; for others than the loop,
// which may read shard as it is: it alone sets it.
func (r *replica) incarnation() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shard.GetIncarnation()
}

// seal takes the seal of the shard: what no cut has ordered is dropped.
func (r *replica) seal(sh *logpb.Shard) {
	r.setShard(sh)
	if r.core.Phase() != storage.PhaseOpen {
		return
	}
	r.core.Seal(sharedlog.LSN(sh.GetSealedAt()), sh.GetLength())
	r.backlog.close()
	r.n.opt.Logger.Info("shard sealed", "node", r.n.opt.Addr, "shard", r.id, "length", sh.GetLength(), "at", sh.GetSealedAt(), "held", r.core.Length())
}

// settle takes the fates that are known now, shows and answers what they decide, and
// closes segments that are through.
func (r *replica) settle() error {
	if r.finishing {
		return r.whole()
	}
	if p := r.core.Phase(); p != storage.PhaseOpen && p != storage.PhaseSealed {
		return nil
	}
	s := &r.scratch
	s.groups, s.added = s.groups[:0], s.added[:0]
	n, decided := 0, sharedlog.LSN(0)
	for {
		f, ok, err := r.core.Next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if n == len(r.written) || r.written[n].position != f.Position {
			return errors.New("the order and the sublog disagree") // a bug; going on would make it worse
		}
		w := &r.written[n]
		decided = f.First + sharedlog.LSN(f.Records)
		if w.indexed {
			n++
			continue
		}
		if w.records == nil {
			if err := r.load(w); err != nil {
				return err
			}
		}
		n++
		o := outcome{first: f.First}
		if !f.Effect {
			o = outcome{err: errVoid(f.Writer, f.Number)}
		} else {
			s.groups = append(s.groups, delivery.Group{First: f.First, Records: w.records, Sums: w.sums, Bytes: w.bytes})
		}
		if w.from != nil {
			w.from.inflight -= w.bytes
		}
		r.answer(w.from, w.seq, o)
		r.answerRepeats(f.Writer, f.Number, o)
		s.added = append(s.added, tagindex.Added{Segment: w.loc.ID, Records: w.records, Group: tagindex.Group{
			Offset: w.loc.Offset, Size: w.loc.Size, Records: uint32(f.Records), Effect: f.Effect, Position: f.Position, First: f.First,
		}})
	}
	if n > 0 {
		rest := copy(r.written, r.written[n:])
		clear(r.written[rest:])
		r.written = r.written[:rest]
		r.index.Add(s.added)
		r.dirty = true
	}
	// When much of the metalog comes at once, the order's end is not known between its parts
	// (tail is older): the groups lie below the frontier all the same.
	if frontier := max(r.core.Frontier(sharedlog.LSN(r.tail)), decided); frontier > r.hub.Tail() || len(s.groups) > 0 {
		if r.core.Phase() == storage.PhaseSealed && r.core.Order().Assigned() >= kept(r.shard) {
			r.setLost() // the frontier lies behind what was given up
		}
		r.hub.Publish(s.groups, max(frontier, r.hub.Tail()))
	}
	clear(s.groups)
	clear(s.added)
	s.added = s.added[:0]
	if r.core.Phase() == storage.PhaseSealed {
		return r.finish()
	}
	return r.closeFull()
}

// load reads the records of a group that was found on the disk.
func (r *replica) load(w *placed) error {
	var d segment.Decoded
	if _, err := r.n.store.Read(w.loc, nil, &d); err != nil {
		return err
	}
	w.records, w.sums = d.Group.Records, d.Sums
	for i := range w.records {
		w.bytes += int64(len(w.records[i].Data))
	}
	return nil
}

// closeFull closes full segments all of whose groups have fates. It waits for the disk,
// so it is done beside the loop, one segment after the other.
func (r *replica) closeFull() error {
	if r.closing || len(r.full) == 0 || r.core.Order().Assigned() < r.full[0].position || time.Since(r.refusedClose) < retryEvery {
		return nil
	}
	id := r.full[0].id
	footer, used, groups := r.index.Footer(id)
	if groups == 0 {
		r.full = r.full[1:]
		return r.closeSegment(id)
	}
	r.closing = true
	r.n.wg.Go(func() {
		err := r.n.store.CloseSegment(id, used, footer)
		r.put(item{call: func() {
			if r.closing = false; err == nil {
				err = r.index.Closed(id)
				r.full, r.dirty, r.unsavedWriters = r.full[1:], true, true
			}
			switch {
			case sharedlog.KindOf(err) == sharedlog.KindFull: // a later batch tries again, not this one
				r.refusedClose = time.Now()
			case err != nil:
				r.n.stop(fmt.Errorf("shard %d: %w", r.id, err))
			}
		}})
	})
	return nil
}

// closeSegment ends a segment with its index as footer. One without groups is
// deleted.
func (r *replica) closeSegment(id segment.ID) error {
	footer, used, groups := r.index.Footer(id)
	if groups == 0 {
		if used > 0 {
			if err := r.index.Closed(id); err != nil {
				return err
			}
		}
		return r.n.store.Delete(id)
	}
	if err := r.n.store.CloseSegment(id, used, footer); err != nil {
		return err
	}
	return r.index.Closed(id)
}

// finish ends a sealed shard: when all that is ordered is here, its segments are
// closed and the replica is full; else what is missing is fetched.
func (r *replica) finish() error {
	if _, _, missing := r.core.Missing(); missing {
		r.fetchMissing()
		return nil
	}
	if r.closing || !r.core.Done() {
		return nil
	}
	for _, w := range r.written { // what the seal has dropped
		r.answer(w.from, w.seq, outcome{err: sharedlog.Errorf(sharedlog.KindSealed, "shard %d", r.id)})
	}
	r.written = nil
	for k, ws := range r.repeats {
		for _, w := range ws {
			r.answer(w.from, w.seq, outcome{err: sharedlog.Errorf(sharedlog.KindSealed, "shard %d", r.id)})
		}
		delete(r.repeats, k)
	}
	return r.whole()
}

// retryEvery is how soon the end of a replica is tried again that a full disk refused.
const retryEvery = 100 * time.Millisecond

// whole makes the replica of a sealed shard a full one. A full disk only puts that off:
// what is held is shown, and a later batch tries again.
func (r *replica) whole() error {
	if r.finishing && time.Since(r.tried) < retryEvery {
		return nil
	}
	err := r.makeWhole()
	if sharedlog.KindOf(err) == sharedlog.KindFull {
		if r.tried.IsZero() {
			r.n.opt.Logger.Warn("the disk is full; the replica of a sealed shard is finished when there is room", "node", r.n.opt.Addr, "shard", r.id, "error", err)
		}
		r.finishing, r.tried = true, time.Now()
		return nil
	}
	r.finishing = false
	return err
}

func (r *replica) makeWhole() error {
	if r.appender != nil {
		a := r.appender
		if err := a.Sync(); err != nil {
			return lasting(err)
		}
		r.mu.Lock()
		r.appender = nil
		r.mu.Unlock()
		if err := a.Close(); err != nil {
			return lasting(err)
		}
	}
	r.setLost()
	r.hub.Publish(nil, everything)
	if err := r.deleteOld(); err != nil {
		return err
	}
	var open []segment.ID
	for _, info := range r.n.store.Segments() {
		if info.ID.Shard == r.id && info.State == segment.StateOpen {
			open = append(open, info.ID)
		}
	}
	for _, id := range open {
		if err := r.closeSegment(id); err != nil {
			return err
		}
	}
	r.full, r.dirty, r.finishing = nil, true, false
	r.unsavedWriters, r.resolved = true, time.Now()
	if err := r.checkpoint(); err != nil {
		return err
	}
	r.setPhase()
	r.hub.Forget()
	r.n.leader.holds(r.id)
	r.n.share()
	r.n.opt.Logger.Info("replica is full", "node", r.n.opt.Addr, "shard", r.id, "length", kept(r.shard))
	return nil
}

// lasting is an error that room on the disk does not mend: nobody knows what a sync
// that failed has dropped.
func lasting(err error) error { return fmt.Errorf("%v", err) }

// lose makes the replica a stale one: it has missed a part of the metalog.
func (r *replica) lose(sh *logpb.Shard) {
	r.put(item{call: func() {
		r.setShard(sh)
		r.drop()
	}})
}

// drop forgets what the replica holds, in memory and on disk; of the loop.
func (r *replica) drop() {
	r.shutDown(sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d on %s has lost the thread", r.id, r.n.opt.Addr))
	n := r.n
	fresh, err := n.stale(r.shard)
	if err != nil {
		n.stop(err)
		return
	}
	fresh.remains = r.remaining()
	n.mu.Lock()
	n.replicas[r.id] = fresh
	if !n.closing {
		n.wg.Go(fresh.run)
	}
	n.mu.Unlock()
	r.setEnded()
}

// shutDown closes the segment that the replica writes and its streams; its cursors end with
// err. Of the loop; setEnded follows.
func (r *replica) shutDown(err error) {
	r.core.Lose()
	r.finishing = false
	r.setPhase()
	if a := r.appender; a != nil {
		r.mu.Lock()
		r.appender = nil
		r.mu.Unlock()
		if err := a.Close(); err != nil {
			r.n.stop(err)
		}
	}
	r.backlog.close()
	r.hub.Close(err)
	r.forgetSaving()
}

// setEnded ends the loop, and those who wait for room in its queue.
func (r *replica) setEnded() {
	r.mu.Lock()
	r.ended = true
	r.space.Broadcast()
	r.mu.Unlock()
	r.nudge()
}

// fetched enters a group that was copied with its fate.
func (r *replica) fetched(a *arrival, loc segment.Location) {
	f := a.fate
	r.core.Learn(f)
	r.scratch.added = append(r.scratch.added, tagindex.Added{Segment: loc.ID, Records: a.decoded.Group.Records, Group: tagindex.Group{
		Offset: loc.Offset, Size: loc.Size, Records: uint32(f.Records), Effect: f.Effect, Position: f.Position, First: f.First,
	}})
}
