package tagindex

import (
	"encoding/binary"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// Group is where a group lies, in the file, in the sublog and in the order.
type Group struct {
	Offset, Size uint32 // in the segment's file, bytes
	Records      uint32
	Effect       bool
	Position     uint64 // of its first record in the sublog
	First        sharedlog.LSN
}

// End returns the LSN behind the group.
func (g *Group) End() sharedlog.LSN { return g.First + sharedlog.LSN(g.Records) }

// Part is the index of one segment. A Part that is added to must not be read by
// others meanwhile; Index sees to that.
type Part struct {
	ID     segment.ID
	groups []Group
	tags   map[sharedlog.Tag]*posting
	memory int64 // see size; 0 if not known yet
}

// posting is a tag's groups in one segment: ordinals in Part.groups, rising. In a
// Part made of a footer they are decoded when they are first asked for.
type posting struct {
	rows  []uint32
	end   sharedlog.LSN // behind the last record that carries the tag
	raw   []byte        // if made of a footer: the gaps
	count int           // of ordinals in raw
	lazy  atomic.Pointer[[]uint32]
}

// NewPart returns the index of a segment without groups.
func NewPart(id segment.ID) *Part {
	return &Part{ID: id, tags: make(map[sharedlog.Tag]*posting)}
}

// Add enters the segment's next group; its records count only if it has effect.
// Nothing of records is kept. It costs a look-up for each tag of each record, and
// an entry for each tag of the group.
func (p *Part) Add(g Group, records []sharedlog.Record) {
	n := uint32(len(p.groups))
	p.groups = append(p.groups, g)
	if !g.Effect {
		return
	}
	for i := range records {
		end := g.First + sharedlog.LSN(i) + 1
		for _, t := range records[i].Tags {
			l := p.tags[t]
			if l == nil {
				l = new(posting)
				p.tags[sharedlog.Tag(strings.Clone(string(t)))] = l
			}
			l.end = end
			if k := len(l.rows); k == 0 || l.rows[k-1] != n {
				l.rows = append(l.rows, n)
			}
		}
	}
}

// Len returns the number of groups.
func (p *Part) Len() int { return len(p.groups) }

// Used returns the offset behind the last group, in bytes.
func (p *Part) Used() int64 {
	if len(p.groups) == 0 {
		return segment.HeaderSize
	}
	g := &p.groups[len(p.groups)-1]
	return int64(g.Offset) + int64(g.Size)
}

// end returns the LSN behind the last group, 0 if there is none.
func (p *Part) end() sharedlog.LSN {
	if len(p.groups) == 0 {
		return 0
	}
	return p.groups[len(p.groups)-1].End()
}

func (p *Part) place(n uint32) Place {
	g := &p.groups[n]
	return Place{First: g.First, Location: segment.Location{ID: p.ID, Offset: g.Offset, Size: g.Size, Position: g.Position}}
}

// of returns a tag's ordinals, nil if it has none here.
func (p *Part) of(tag sharedlog.Tag) []uint32 {
	l := p.tags[tag]
	if l == nil {
		return nil
	}
	if l.raw == nil {
		return l.rows
	}
	if rows := l.lazy.Load(); rows != nil {
		return *rows
	}
	rows := make([]uint32, 0, l.count)
	n := uint64(0)
	for raw := l.raw; len(raw) > 0; { // ParseFooter has checked it
		d, k := binary.Uvarint(raw)
		raw = raw[k:]
		n += d
		rows = append(rows, uint32(n))
	}
	l.lazy.Store(&rows) // who comes at the same time does the same
	return rows
}

// window bounds how many groups one round of find looks at, so that a long
// posting costs no more than what is returned.
const window = 512

// find appends the places of groups that carry one of tags and have records in
// [from, upto), in order, at most about limit bytes of them but at least one. It
// returns from where to go on, upto if nothing is left.
func (p *Part) find(dst []Place, tags []sharedlog.Tag, from, upto sharedlog.LSN, limit int64) ([]Place, sharedlog.LSN) {
	start := uint32(sort.Search(len(p.groups), func(i int) bool { return p.groups[i].End() > from }))
	var lists [][]uint32 // of the tags, each from its next ordinal on
	for _, t := range tags {
		if l := p.of(t); len(l) > 0 {
			i, _ := slices.BinarySearch(l, start)
			if i < len(l) {
				lists = append(lists, l[i:])
			}
		}
	}
	var found []uint32
	before := len(dst)
	for {
		// The nearest group any tag has, and all within a window behind it.
		nearest := uint32(len(p.groups))
		for _, l := range lists {
			if len(l) > 0 {
				nearest = min(nearest, l[0])
			}
		}
		if int(nearest) == len(p.groups) || p.groups[nearest].First >= upto {
			return dst, upto
		}
		found = found[:0]
		for i, l := range lists {
			for len(l) > 0 && l[0] < nearest+window {
				found = append(found, l[0])
				l = l[1:]
			}
			lists[i] = l
		}
		slices.Sort(found)
		for _, n := range slices.Compact(found) {
			g := &p.groups[n]
			if g.First >= upto {
				return dst, upto
			}
			if limit <= 0 && len(dst) > before {
				return dst, g.First
			}
			limit -= int64(g.Size)
			dst = append(dst, p.place(n))
		}
	}
}

// last returns the newest group of tag that begins below an LSN.
func (p *Part) last(tag sharedlog.Tag, below sharedlog.LSN) (Place, bool) {
	l := p.of(tag)
	i := sort.Search(len(l), func(i int) bool { return p.groups[l[i]].First >= below })
	if i == 0 {
		return Place{}, false
	}
	return p.place(l[i-1]), true
}

// size returns about how many bytes of memory a Part that is not added to any
// more takes when all of it has been looked at. Calls must not be concurrent.
func (p *Part) size() int64 {
	if p.memory == 0 {
		p.memory = 32 * int64(len(p.groups))
		for t, l := range p.tags {
			p.memory += tagMemory(t, len(l.rows))
		}
	}
	return p.memory
}

// tagMemory is a tag's share of size: the string, the posting and the map's
// entry, and the ordinals.
func tagMemory(t sharedlog.Tag, count int) int64 { return int64(len(t)) + 128 + 4*int64(count) }
