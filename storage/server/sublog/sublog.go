// Package sublog reads what a replica has on disk of its shard: the segments, with the index of the
// groups that have outcomes. All of it may be called on any goroutine, while the replica appends and
// segments are deleted.
package sublog

import (
	"errors"
	"io"
	"strings"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

// Sublog is one replica's part of the node's segments.
type Sublog struct {
	Node  string // the node's address, for errors
	Shard uint32
	Store *segment.Store // holds the segments of all replicas of the node
	Index *tagindex.Index
}

// Segments returns the segments, ordered by number.
func (s *Sublog) Segments() (all []segment.Info) {
	for _, info := range s.Store.Segments() {
		if info.ID.Shard == s.Shard {
			all = append(all, info)
		}
	}
	return all
}

// Scan calls visit for the groups between two positions. It skips closed segments that end below
// from.
func (s *Sublog) Scan(from, to uint64, visit func(position uint64, d *segment.Decoded) error) error {
	for _, info := range s.Segments() {
		if end := info.Extent.To; end > 0 && end <= from {
			continue
		}
		_, err := s.Store.Scan(info.ID, func(_ segment.Location, d *segment.Decoded) error {
			if d.End() <= from {
				return nil
			}
			if d.Position >= to {
				return errEnough
			}
			return visit(d.Position, d)
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil && sharedlog.KindOf(err) != sharedlog.KindTrimmed {
			return err
		}
	}
	return nil
}

var errEnough = errors.New("enough")

// Read reads a group of a segment.
func (s *Sublog) Read(id segment.ID, g *tagindex.Group, buf []byte, d *segment.Decoded) ([]byte, error) {
	return s.Store.Read(segment.Location{ID: id, Offset: g.Offset, Size: g.Size, Position: g.Position}, buf, d)
}

// Outcomes reads the outcomes of a writer's groups in a closed segment, or of all groups if writer
// is empty.
func (s *Sublog) Outcomes(info segment.Info, writer string) (all []storage.Outcome, _ error) {
	groups, err := s.Index.Groups(info.ID)
	if err != nil {
		return nil, err
	}
	i := 0
	found, err := s.Store.Scan(info.ID, func(_ segment.Location, d *segment.Decoded) error {
		for i < len(groups) && groups[i].Position < d.Position {
			i++
		}
		if i < len(groups) && groups[i].Position == d.Position && (writer == "" || d.Group.Writer == writer) {
			all = append(all, storage.Outcome{First: groups[i].First, Effect: groups[i].Effect, Head: storage.Head{
				Writer: strings.Clone(d.Group.Writer), Number: d.Group.Number, Position: d.Position, Records: uint64(groups[i].Records),
			}})
		}
		return nil
	})
	if err == nil && found.Stopped != io.EOF {
		err = sharedlog.Errorf(sharedlog.KindCorrupt, "node %s, shard %d: %w", s.Node, s.Shard, found.Damage())
	}
	return all, err
}

// extent returns the positions that a segment covers as far as its groups have outcomes, and the
// LSN after the last of them. ok is false if it holds nothing: it was deleted in the meantime, or
// has no group with an outcome.
func (s *Sublog) extent(info segment.Info) (x segment.Extent, ok bool, _ error) {
	groups, err := s.Index.Groups(info.ID)
	switch {
	case sharedlog.KindOf(err) == sharedlog.KindTrimmed, err != nil && info.State == segment.StateOpen, err == nil && len(groups) == 0:
		return x, false, nil
	case err != nil:
		return x, false, err
	}
	last := &groups[len(groups)-1]
	x.From, x.To, x.End = groups[0].Position, last.Position+uint64(last.Records), last.End()
	return x, true, nil
}

// Gap returns the end of the last trimmed range that lies above one position and below a length; 0
// if there is none. From there to length the segments hold everything.
func (s *Sublog) Gap(above, length uint64) (end uint64, _ error) {
	if above >= length {
		return 0, nil
	}
	at := uint64(0)
	for _, info := range s.Segments() {
		x := info.Extent
		if info.State != segment.StateClosed || x.To == 0 {
			var ok bool
			var err error
			if x, ok, err = s.extent(info); err != nil {
				return 0, err
			} else if !ok {
				continue
			}
		}
		if x.From > at && x.From > above {
			end = x.From
		}
		at = max(at, x.To)
	}
	if at < length {
		end = length
	}
	return end, nil
}

// Readable returns the length below which all groups are present with their outcomes, or were
// trimmed, and the LSN after the last of them.
func (s *Sublog) Readable() (length uint64, end sharedlog.LSN) {
	for _, info := range s.Segments() {
		x := info.Extent
		if info.State != segment.StateClosed || info.Damage != nil || x.To == 0 || x.From < length {
			var ok bool
			var err error
			if x, ok, err = s.extent(info); err != nil {
				return length, end // damaged: what follows is of no use
			} else if !ok || x.From < length {
				continue
			}
		}
		length, end = x.To, x.End
	}
	return length, end
}

// End returns the LSN after the last group that ends at or below a position, or a lower one if that
// group was trimmed; at least low.
func (s *Sublog) End(position uint64, low sharedlog.LSN) sharedlog.LSN {
	for _, info := range s.Segments() {
		x := info.Extent
		if x.To > 0 && x.To <= position {
			low = max(low, x.End)
			continue
		}
		groups, err := s.Index.Groups(info.ID)
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

// Positions returns the range of positions that a segment covers, from the list of segments, or
// else from the segment's neighbors. length is where the last segment ends.
func (s *Sublog) Positions(info segment.Info, length uint64) (from, to uint64) {
	if info.Extent.To > 0 {
		return info.Extent.From, info.Extent.To
	}
	for _, o := range s.Segments() {
		switch {
		case o.Extent.To == 0:
		case o.ID.Number < info.ID.Number:
			from = o.Extent.To
		case o.ID.Number > info.ID.Number:
			return from, o.Extent.From
		}
	}
	return from, length
}
