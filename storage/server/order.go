package server

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/server/session"
	"tailrace.dev/tailrace/storage/server/table"
	"tailrace.dev/tailrace/storage/shard"
)

// follow applies events of the metalog to the order.
func (r *loop) follow(a *advance) error {
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
		// The shard may have been sealed before this replica existed.
		if sh := r.n.table.Shard(r.id); sh != nil && sh.GetSealed() {
			r.setShard(sh)
			r.copyWhole()
		}
	}
	if seal {
		r.dirty = true
	}
	return nil
}

func (r *loop) setPhase() {
	r.mu.Lock()
	r.phase = r.shownPhase()
	r.mu.Unlock()
}

// shownPhase returns the core's phase, except that a replica that is not finished is not full for
// others: it keeps receiving events of the metalog, and each makes it try again.
func (r *loop) shownPhase() storage.Phase {
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

// incarnation returns the incarnation of the process that opened the shard. Only the
// loop writes shard, so the loop may read it without mu.
func (r *replica) incarnation() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shard.GetIncarnation()
}

// seal applies the shard's seal: groups that no cut has ordered are dropped.
func (r *loop) seal(sh *logpb.Shard) {
	r.setShard(sh)
	if r.core.Phase() != storage.PhaseOpen {
		return
	}
	r.core.Seal(sharedlog.LSN(sh.GetSealedAt()), sh.GetLength())
	r.backlog.Close()
	r.n.opt.Logger.Info("shard sealed", "node", r.n.opt.Addr, "shard", r.id, "length", sh.GetLength(), "at", sh.GetSealedAt(), "held", r.core.Length())
}

// applyOutcomes applies the outcomes that are known now: it publishes and answers the groups, and closes
// full segments whose groups all have outcomes.
func (r *loop) applyOutcomes() error {
	if r.finishing {
		return r.whole()
	}
	if p := r.core.Phase(); p != storage.PhaseOpen && p != storage.PhaseSealed {
		return nil
	}
	done, err := r.turn.Apply()
	if err != nil {
		return err
	}
	if done.Groups > 0 {
		r.disk.Index.Add(r.turn.Added)
		r.dirty = true
	}
	// When many events are received at once, tail is older than the order's end between their
	// parts. The decided groups are below the frontier all the same.
	if frontier := max(r.core.Frontier(sharedlog.LSN(r.tail)), done.End); frontier > r.hub.Tail() || len(r.turn.Groups) > 0 {
		if r.core.Phase() == storage.PhaseSealed && r.core.Order().Assigned() >= table.Kept(r.shard) {
			r.setLost() // the frontier is above the lost records
		}
		r.hub.Publish(r.turn.Groups, max(frontier, r.hub.Tail()))
	}
	if r.core.Phase() == storage.PhaseSealed {
		return r.finish()
	}
	return r.closeFull()
}

// load reads the records of a group that was found on disk at a restart.
func (r *loop) load(w *shard.Written[waiter]) error {
	var d segment.Decoded
	if _, err := r.n.store.Read(w.Location, nil, &d); err != nil {
		return err
	}
	w.Records, w.Sums = d.Group.Records, d.Sums
	for i := range w.Records {
		w.Bytes += int64(len(w.Records[i].Data))
	}
	return nil
}

// closeFull closes full segments whose groups all have outcomes. It waits for the disk, so it runs
// on another goroutine than the loop, one segment at a time.
func (r *loop) closeFull() error {
	if r.closing || len(r.full) == 0 || r.core.Order().Assigned() < r.full[0].position || time.Since(r.refusedClose) < retryEvery {
		return nil
	}
	id := r.full[0].id
	footer, used, groups := r.disk.Index.Footer(id)
	if groups == 0 {
		r.full = r.full[1:]
		return r.closeSegment(id)
	}
	r.closing = true
	r.n.wg.Go(func() {
		err := r.n.store.CloseSegment(id, used, footer)
		r.put(item{call: func(r *loop) {
			if r.closing = false; err == nil {
				err = r.disk.Index.Closed(id)
				r.full, r.dirty, r.unsavedWriters = r.full[1:], true, true
			}
			switch {
			case sharedlog.KindOf(err) == sharedlog.KindFull: // a later batch tries again
				r.refusedClose = time.Now()
			case err != nil:
				r.n.stop(fmt.Errorf("shard %d: %w", r.id, err))
			}
		}})
	})
	return nil
}

// closeSegment closes a segment with its index as footer. It deletes a segment without groups.
func (r *loop) closeSegment(id segment.ID) error {
	footer, used, groups := r.disk.Index.Footer(id)
	if groups == 0 {
		if used > 0 {
			if err := r.disk.Index.Closed(id); err != nil {
				return err
			}
		}
		return r.n.store.Delete(id)
	}
	if err := r.n.store.CloseSegment(id, used, footer); err != nil {
		return err
	}
	return r.disk.Index.Closed(id)
}

// finish completes a sealed shard: when all ordered records are here, it closes the segments and
// the replica becomes full. Otherwise it fetches what is missing.
func (r *loop) finish() error {
	if _, _, missing := r.core.Missing(); missing {
		r.fetchMissing()
		return nil
	}
	if r.closing || !r.core.Done() {
		return nil
	}
	r.turn.Seal()
	return r.whole()
}

// retryEvery is the delay before a step that a full disk prevented is tried again.
const retryEvery = 100 * time.Millisecond

// whole makes the replica of a sealed shard full. If the disk is full, a later batch tries again;
// readers see what is held in the meantime.
func (r *loop) whole() error {
	if r.finishing && time.Since(r.tried) < retryEvery {
		return nil
	}
	err := r.makeWhole()
	if sharedlog.KindOf(err) == sharedlog.KindFull {
		if r.tried.IsZero() {
			r.n.opt.Logger.Warn("disk full; the replica of a sealed shard is completed when there is room", "node", r.n.opt.Addr, "shard", r.id, "error", err)
		}
		r.finishing, r.tried = true, time.Now()
		return nil
	}
	r.finishing = false
	return err
}

func (r *loop) makeWhole() error {
	if r.appender != nil {
		a := r.appender
		if err := a.Sync(); err != nil {
			return permanent(err)
		}
		r.mu.Lock()
		r.appender = nil
		r.mu.Unlock()
		if err := a.Close(); err != nil {
			return permanent(err)
		}
	}
	r.setLost()
	r.hub.Publish(nil, session.Everything)
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
	r.n.leader.Holds(r.id)
	r.n.share()
	r.n.opt.Logger.Info("replica is full", "node", r.n.opt.Addr, "shard", r.id, "length", table.Kept(r.shard))
	return nil
}

// permanent marks an error that freeing disk space does not fix: after a failed sync it is unknown
// which writes were lost.
func permanent(err error) error { return fmt.Errorf("%v", err) }

// lose makes the replica stale, because it has missed a part of the metalog.
func (r *replica) lose(sh *logpb.Shard) {
	r.put(item{call: func(l *loop) {
		l.setShard(sh)
		l.drop()
	}})
}

// drop replaces the replica by a stale one.
func (r *loop) drop() {
	r.shutDown(sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d on %s fell behind the metalog", r.id, r.n.opt.Addr))
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

// shutDown closes the replica's appender and streams; its cursors end with err. The
// caller calls setEnded after it.
func (r *loop) shutDown(err error) {
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
	r.backlog.Close()
	r.hub.Close(err)
	r.forgetSaving()
}

// setEnded ends the loop and wakes the callers that wait for space in its queue.
func (r *replica) setEnded() {
	r.mu.Lock()
	r.ended = true
	r.space.Broadcast()
	r.mu.Unlock()
	r.wakeUp()
}

// fetched enters a group that was copied with its outcome.
func (r *loop) fetched(a *arrival, loc segment.Location) {
	r.core.Learn(a.outcome)
	r.scratch.added = append(r.scratch.added, shard.Added(a.outcome, loc, a.decoded.Group.Records))
}
