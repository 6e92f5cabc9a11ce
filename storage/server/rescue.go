package server

import (
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/server/fetch"
	"tailrace.dev/tailrace/storage/server/sublog"
	"tailrace.dev/tailrace/storage/server/table"
)

// A rescue gives up the end of a sealed shard that no replica holds any more (docs/adr/0025). A
// replica that has everything below it, stale or not, is then full, and the others copy from it.
// Readers that reach the end of what is kept get ErrLost.

// remains is what is left of a replica that has become stale: its segments, with the outcomes that
// were known. Readers never see it; a rescue can use it.
type remains struct {
	log    *sublog.Sublog
	length uint64        // all groups below are present, or were trimmed
	end    sharedlog.LSN // the LSN after the last of them
}

// remaining returns what would remain of the replica if it became stale.
func (r *replica) remaining() *remains {
	length, end := r.disk.Readable()
	return &remains{r.disk, length, end}
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
		if end = r.shown.LostFrom(); end == 0 {
			end = sharedlog.LSN(r.shard.GetSealedAt())
		}
		return table.Kept(r.shard), end
	case r.phase == storage.PhaseSealed:
		return r.sizes.length, r.hub.Tail()
	case r.phase == storage.PhaseStale && r.remains != nil:
		return r.remains.length, max(r.remains.end, sharedlog.LSN(r.shard.GetOpened()))
	}
	return 0, sharedlog.LSN(r.shard.GetOpened())
}

// rescue applies a description of the shard in which records are given up.
func (r *loop) rescue(sh *logpb.Shard) {
	if sh.GetLost() <= r.shard.GetLost() {
		return
	}
	r.setShard(sh)
	r.core.Rescue(table.Kept(sh))
	r.dirty = true
	if r.core.Phase() == storage.PhaseSealed {
		r.turn.Drop(r.core.Length())
	}
	if r.core.Phase() == storage.PhaseFull {
		r.setLost()
	}
	r.n.opt.Logger.Warn("records of a shard were given up", "node", r.n.opt.Addr, "shard", r.id, "records", sh.GetLost(), "of", sh.GetLength(), "held", r.core.Length())
}

// setLost stores the LSN from which a full replica shows nothing, if records of the shard were
// given up. The caller publishes nothing above that LSN before.
func (r *loop) setLost() {
	sh := r.shard
	if sh.GetLost() == 0 {
		return
	}
	r.shown.Lost.Store(uint64(r.disk.End(table.Kept(sh), sharedlog.LSN(sh.GetOpened()))))
}

// copyRemains copies the shard from what this node's disk held before the replica became stale.
func (r *replica) copyRemains(f *fetch.Fetcher, m *remains) error {
	own := fetch.Sender{
		Log: m.log, Table: &r.n.table, At: f.At, Upto: table.Kept(f.Shard), Marks: true,
		Send:  func(b []byte) error { return f.Take(r.n.opt.Addr, b) },
		Valid: func() bool { return true },
	}
	stalls := r.stalled()
	err := own.All(false)
	switch {
	case err == nil && r.stalled() != stalls:
		err = sharedlog.Errorf(sharedlog.KindFull, "node %s", r.n.opt.Addr)
	case sharedlog.KindOf(err) == sharedlog.KindCorrupt:
		r.ask(func(*loop) { r.setRemains(nil) }) // it has less than the list of segments says
	}
	return err
}
