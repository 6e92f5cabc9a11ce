package server

import (
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

// serveFetch sends the ordered groups of a shard from a position on, with their outcomes, as far as
// this replica has them, and, if the request asks for it, marks for ranges that were trimmed
// (wire.Fetched). Data that cannot be read is an error and is never left out: the receiver would
// take a copy with a hole for complete.
func (n *Node) serveFetch(st transport.Stream) error {
	req := new(logpb.FetchRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	r := n.replica(req.GetShard())
	if r == nil {
		return sharedlog.Errorf(sharedlog.KindClosed, "node %s has no replica of shard %d", n.opt.Addr, req.GetShard())
	}
	r.mu.Lock()
	upto, ready, full := min(req.GetTo(), r.sizes.assigned), r.phase != storage.PhaseStale, r.phase == storage.PhaseFull
	if full {
		upto = min(req.GetTo(), kept(r.shard))
	}
	r.mu.Unlock()
	if !ready {
		return sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d on %s is being copied itself", r.id, n.opt.Addr)
	}
	f := fetching{
		n: n, shard: r.id, index: r.index, at: req.GetFrom(), upto: upto, marks: req.GetMarks(),
		send:  func(b []byte) error { return st.Send(&transport.Raw{Parts: [][]byte{b}}) },
		valid: func() bool { return n.replica(r.id) == r },
	}
	if f.marks && full {
		f.writers(r)
	}
	err := f.segments(full)
	if err == nil {
		err = f.trimmed(f.upto)
	}
	if err2 := f.flush(); err == nil { // readable data is sent also before an error
		err = err2
	}
	return err
}

// fetching is the answer to a fetch request. The rows so far reach up to the position at.
type fetching struct {
	n        *Node
	shard    uint32
	index    *tagindex.Index
	at, upto uint64
	marks    bool
	send     func(b []byte) error
	valid    func() bool // reports that the segments are still those of the index
	b        []byte
}

// segments sends what the replica holds.
func (f *fetching) segments(full bool) error {
	for _, info := range f.n.store.Segments() {
		if to := info.Extent.To; info.ID.Shard != f.shard || to > 0 && to <= f.at || info.Extent.From >= f.upto {
			continue
		}
		groups, err := f.index.Groups(info.ID)
		switch {
		case sharedlog.KindOf(err) == sharedlog.KindTrimmed:
			continue // deleted in the meantime
		case err != nil && info.State == segment.StateOpen && !full:
			continue // it holds nothing ordered: it was only prepared, or its write was torn
		case err != nil:
			return f.unreadable(err)
		}
		if err := f.groups(info.ID, groups); err != nil {
			return err
		}
	}
	return nil
}

func (f *fetching) unreadable(err error) error {
	return sharedlog.Errorf(sharedlog.KindOf(err), "node %s, shard %d, position %d: %w", f.n.opt.Addr, f.shard, f.at, err)
}

// groups sends what a segment holds.
func (f *fetching) groups(id segment.ID, groups []tagindex.Group) error {
	for i := range groups {
		g := &groups[i]
		if g.Position < f.at || g.Position >= f.upto {
			continue
		}
		row := wire.Fetched{Kind: wire.FetchedVoid, From: g.Position, First: g.First}
		if g.Effect {
			row.Kind = wire.FetchedGroup
		}
		var d segment.Decoded
		_, err := f.n.store.Read(segment.Location{ID: id, Offset: g.Offset, Size: g.Size, Position: g.Position}, nil, &d)
		if sharedlog.KindOf(err) == sharedlog.KindTrimmed {
			return nil // deleted in the meantime
		}
		if err != nil {
			return f.unreadable(err)
		}
		row.Body = d.Body()
		if err := f.trimmed(g.Position); err != nil {
			return err
		}
		f.b = wire.AppendFetched(f.b, &row)
		f.at = g.Position + uint64(g.Records)
		if len(f.b) >= wire.MessageBytes {
			if err := f.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// trimmed marks the positions up to to as trimmed: a segment is missing from the replica's list
// only if it was deleted because its records were trimmed.
func (f *fetching) trimmed(to uint64) error {
	if f.at >= to {
		return nil
	}
	if !f.valid() {
		return sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d on %s was replaced", f.shard, f.n.opt.Addr)
	}
	if f.marks {
		// The trim points that explain the range are in the table by now. The receiver must know
		// them before it shows the copy to readers.
		index, _, _ := f.n.table.at()
		f.b = wire.AppendFetched(f.b, &wire.Fetched{Kind: wire.FetchedTrimmed, From: f.at, To: to, Index: index})
	}
	f.at = to
	return nil
}

// maxTable is the largest table of writers that is sent with a copy, in bytes. Without the table
// numbers of trimmed groups are Forgotten.
const maxTable = 16 << 20

// writers sends the table of writers of a full replica.
func (f *fetching) writers(r *replica) {
	table, err := r.writersTable()
	if err != nil {
		f.n.opt.Logger.Warn("no table of writers is sent with a copy, so the copy does not know the numbers of trimmed groups", "node", f.n.opt.Addr, "shard", f.shard, "error", err)
	}
	if len(table) > 0 && len(table) <= maxTable {
		f.b = wire.AppendFetched(f.b, &wire.Fetched{Kind: wire.FetchedWriters, Table: table})
	}
}

func (f *fetching) flush() error {
	if len(f.b) == 0 {
		return nil
	}
	err := f.send(f.b)
	f.b = nil
	return err
}
