package server

import (
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

// A rescue gives up the end of a sealed shard that no replica holds any more (docs/adr/0025). A
// replica that has everything below it, stale or not, is then full, and the others copy from it.
// Readers that reach the end of what is kept get ErrLost.

// kept returns the number of records of a sealed shard that were not given up.
func kept(sh *logpb.Shard) uint64 { return sh.GetLength() - sh.GetLost() }

// remains is what is left of a replica that has become stale: its segments, with the outcomes that
// were known. Readers never see it; a rescue can use it.
type remains struct {
	index  *tagindex.Index
	length uint64        // all groups below are present, or were trimmed
	end    sharedlog.LSN // the LSN after the last of them
}

// remaining returns what would remain of the replica if it became stale.
func (r *replica) remaining() *remains {
	m := &remains{index: r.index}
	for _, info := range r.segments() {
		if x := info.Extent; info.State == segment.StateClosed && info.Damage == nil && x.To > 0 && x.From >= m.length {
			m.length, m.end = x.To, x.End
			continue
		}
		groups, err := r.index.Groups(info.ID)
		switch {
		case sharedlog.KindOf(err) == sharedlog.KindTrimmed, err != nil && info.State == segment.StateOpen:
			continue // deleted in the meantime, or it holds no group with an outcome
		case err != nil:
			return m // damaged: what follows is of no use
		case len(groups) == 0 || groups[0].Position < m.length:
			continue
		}
		last := &groups[len(groups)-1]
		m.length, m.end = last.Position+uint64(last.Records), last.End()
	}
	return m
}

func (r *replica) setRemains(m *remains) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remains = m
}

// left returns the length up to which the shard can be rescued with this replica once it is sealed,
// and the LSN after the last record there.
func (r *replica) left() (length uint64, end sharedlog.LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.phase == storage.PhaseFull:
		if end = r.lostFrom(); end == 0 {
			end = sharedlog.LSN(r.shard.GetSealedAt())
		}
		return kept(r.shard), end
	case r.phase == storage.PhaseSealed:
		return r.sizes.length, r.hub.Tail()
	case r.phase == storage.PhaseStale && r.remains != nil:
		return r.remains.length, max(r.remains.end, sharedlog.LSN(r.shard.GetOpened()))
	}
	return 0, sharedlog.LSN(r.shard.GetOpened())
}

// rescue applies a description of the shard in which records are given up. The caller holds turnMu.
func (r *replica) rescue(sh *logpb.Shard) {
	if sh.GetLost() <= r.shard.GetLost() {
		return
	}
	r.setShard(sh)
	r.core.Rescue(kept(sh))
	r.dirty = true
	if r.core.Phase() == storage.PhaseSealed {
		n := len(r.written)
		for n > 0 && r.written[n-1].position >= r.core.Length() {
			n--
			r.answer(r.written[n].from, r.written[n].seq, wire.Answer{Err: sharedlog.Errorf(sharedlog.KindSealed, "shard %d", r.id)})
		}
		clear(r.written[n:])
		r.written = r.written[:n]
	}
	if r.core.Phase() == storage.PhaseFull {
		r.setLost()
	}
	r.n.opt.Logger.Warn("records of a shard were given up", "node", r.n.opt.Addr, "shard", r.id, "records", sh.GetLost(), "of", sh.GetLength(), "held", r.core.Length())
}

// setLost stores the LSN from which a full replica shows nothing, if records of the shard were
// given up. The caller publishes nothing above that LSN before.
func (r *replica) setLost() {
	sh := r.shard
	if sh.GetLost() == 0 {
		return
	}
	r.lost.Store(uint64(r.endOf(kept(sh), sharedlog.LSN(sh.GetOpened()))))
}

// endOf returns the LSN after the last group that ends at or below a position, or a lower one if
// that group was trimmed; at least low.
func (r *replica) endOf(position uint64, low sharedlog.LSN) sharedlog.LSN {
	for _, info := range r.segments() {
		x := info.Extent
		if x.To > 0 && x.To <= position {
			low = max(low, x.End)
			continue
		}
		groups, err := r.index.Groups(info.ID)
		if err != nil || x.From >= position && x.To > 0 {
			continue // readers of this segment get the error
		}
		for i := range groups {
			if g := &groups[i]; g.Position+uint64(g.Records) <= position {
				low = max(low, g.End())
			}
		}
	}
	return low
}

// lostFrom returns the LSN from which records of the shard were given up, 0 if none were or if it
// is not known yet.
func (r *replica) lostFrom() sharedlog.LSN { return sharedlog.LSN(r.lost.Load()) }

// errLost is the error for readers that reach the lost records.
func (r *replica) errLost(from sharedlog.LSN) error {
	sh := r.description()
	return sharedlog.Lost(r.id, sh.GetLost(), from, sharedlog.LSN(sh.GetSealedAt()))
}

// copyRemains copies the shard from what this node's disk held before the replica became stale.
func (f *fetcher) copyRemains(m *remains) error {
	r := f.r
	own := fetching{
		n: r.n, shard: r.id, index: m.index, at: f.at, upto: kept(f.shard), marks: true,
		send:  func(b []byte) error { return f.take(r.n.opt.Addr, b) },
		valid: func() bool { return true },
	}
	stalls := r.stalled()
	err := own.segments(false)
	if err == nil {
		err = own.trimmed(own.upto)
	}
	if err2 := own.flush(); err == nil {
		err = err2
	}
	switch {
	case err == nil && r.stalled() != stalls:
		err = sharedlog.Errorf(sharedlog.KindFull, "node %s", r.n.opt.Addr)
	case sharedlog.KindOf(err) == sharedlog.KindCorrupt:
		r.ask(func() { r.setRemains(nil) }) // it has less than the list of segments says
	}
	return err
}
