package fetch

import (
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/server/sublog"
	"tailrace.dev/tailrace/storage/server/table"
	"tailrace.dev/tailrace/storage/tagindex"
)

// Sender sends what a replica holds of a shard, with outcomes. The rows so far reach up to the
// position At.
type Sender struct {
	Log      *sublog.Sublog
	Table    *table.Table
	At, Upto uint64
	Marks    bool // mark trimmed ranges
	Send     func(b []byte) error
	// Valid reports that the segments are still those of the index.
	Valid func() bool

	b []byte
}

// All sends everything up to Upto. full says that the replica is full. Readable data is sent also
// before an error.
func (f *Sender) All(full bool) error {
	err := f.segments(full)
	if err == nil {
		err = f.trimmed(f.Upto)
	}
	if err2 := f.flush(); err == nil {
		err = err2
	}
	return err
}

// segments sends what the replica holds.
func (f *Sender) segments(full bool) error {
	for _, info := range f.Log.Segments() {
		if to := info.Extent.To; to > 0 && to <= f.At || info.Extent.From >= f.Upto {
			continue
		}
		groups, err := f.Log.Index.Groups(info.ID)
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

func (f *Sender) unreadable(err error) error {
	return sharedlog.Errorf(sharedlog.KindOf(err), "node %s, shard %d, position %d: %w", f.Log.Node, f.Log.Shard, f.At, err)
}

// groups sends what a segment holds.
func (f *Sender) groups(id segment.ID, groups []tagindex.Group) error {
	for i := range groups {
		g := &groups[i]
		if g.Position < f.At || g.Position >= f.Upto {
			continue
		}
		row := wire.Fetched{Kind: wire.FetchedVoid, From: g.Position, First: g.First}
		if g.Effect {
			row.Kind = wire.FetchedGroup
		}
		var d segment.Decoded
		_, err := f.Log.Read(id, g, nil, &d)
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
		f.At = g.Position + uint64(g.Records)
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
func (f *Sender) trimmed(to uint64) error {
	if f.At >= to {
		return nil
	}
	if !f.Valid() {
		return sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d on %s was replaced", f.Log.Shard, f.Log.Node)
	}
	if f.Marks {
		// The trim points that explain the range are in the table by now. The receiver must know
		// them before it shows the copy to readers.
		index, _, _ := f.Table.At()
		f.b = wire.AppendFetched(f.b, &wire.Fetched{Kind: wire.FetchedTrimmed, From: f.At, To: to, Index: index})
	}
	f.At = to
	return nil
}

// maxTable is the largest table of writers that is sent with a copy, in bytes. Without the table
// numbers of trimmed groups are Forgotten.
const maxTable = 16 << 20

// Writers sends an encoded table of writers, if it is not too large.
func (f *Sender) Writers(table []byte) {
	if len(table) > 0 && len(table) <= maxTable {
		f.b = wire.AppendFetched(f.b, &wire.Fetched{Kind: wire.FetchedWriters, Table: table})
	}
}

func (f *Sender) flush() error {
	if len(f.b) == 0 {
		return nil
	}
	err := f.Send(f.b)
	f.b = nil
	return err
}
