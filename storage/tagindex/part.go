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

// Group is the place of a group in the file, in the sublog and in the order.
type Group struct {
	Offset, Size uint32 // in the segment's file, bytes
	Records      uint32
	Effect       bool
	Position     uint64 // of its first record in the sublog
	First        sharedlog.LSN
}

// End returns the LSN after the group.
func (g *Group) End() sharedlog.LSN { return g.First + sharedlog.LSN(g.Records) }

// Part is the index of one segment. It must not be read while groups are added; Index ensures that.
type Part struct {
	ID     segment.ID
	groups []Group
	tags   map[sharedlog.Tag]*posting
	memory int64 // see size; 0 if not known yet
}

// posting holds the groups of a tag in one segment: ordinals in Part.groups, rising. In a Part from
// ParseFooter they are decoded at the first use.
type posting struct {
	rows  []uint32
	end   sharedlog.LSN // LSN after the last record with the tag
	raw   []byte        // from ParseFooter: the gaps
	count int           // number of ordinals in raw
	lazy  atomic.Pointer[[]uint32]
}

// NewPart returns the index of a segment without groups.
func NewPart(id segment.ID) *Part {
	return &Part{ID: id, tags: make(map[sharedlog.Tag]*posting)}
}

// Add adds the segment's next group; its records are indexed only if it has effect. The Part does
// not retain records. The cost is a lookup for each tag of each record, and an entry for each tag
// of the group.
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

// Used returns the offset after the last group, in bytes.
func (p *Part) Used() int64 {
	if len(p.groups) == 0 {
		return segment.HeaderSize
	}
	g := &p.groups[len(p.groups)-1]
	return int64(g.Offset) + int64(g.Size)
}

// end returns the LSN after the last group, 0 if there is none.
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

// of returns a tag's ordinals, nil if the segment does not contain the tag.
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
	for raw := l.raw; len(raw) > 0; { // verified by ParseFooter
		d, k := binary.Uvarint(raw)
		raw = raw[k:]
		n += d
		rows = append(rows, uint32(n))
	}
	l.lazy.Store(&rows) // a concurrent caller stores the same
	return rows
}

// window is the number of groups that one round of find looks at, so that the cost of a long
// posting depends on what is returned.
const window = 512

// find appends the places of groups that carry one of tags and have records in [from, upto), in
// order, about limit bytes of them but at least one. It returns where to continue, upto if nothing
// is left.
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
		// The nearest group of any tag, and all groups within a window after it.
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

// last returns the newest group of tag that starts below an LSN.
func (p *Part) last(tag sharedlog.Tag, below sharedlog.LSN) (Place, bool) {
	l := p.of(tag)
	i := sort.Search(len(l), func(i int) bool { return p.groups[l[i]].First >= below })
	if i == 0 {
		return Place{}, false
	}
	return p.place(l[i-1]), true
}

// size returns the approximate memory in bytes of a complete Part with all its postings decoded.
// Calls must not be concurrent.
func (p *Part) size() int64 {
	if p.memory == 0 {
		p.memory = 32 * int64(len(p.groups))
		for t, l := range p.tags {
			p.memory += tagMemory(t, len(l.rows))
		}
	}
	return p.memory
}

// tagMemory returns a tag's share of size: the string, the posting and its map entry, and the
// ordinals.
func tagMemory(t sharedlog.Tag, count int) int64 { return int64(len(t)) + 128 + 4*int64(count) }
