package tagindex

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sort"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// Group is where a group lies, in the file, in the sublog and in the order.
type Group struct {
	Offset, Size uint32 // in the segment's file, bytes
	Records      uint32
	Effect       bool
	Position     uint64
	First        sharedlog.LSN
}

// End returns the LSN behind the group.
func (g *Group) End() sharedlog.LSN { return g.First + sharedlog.LSN(g.Records) }

// Part is the index of one segment. A Part that is added to must not be read by
// others meanwhile; Index sees to that.
type Part struct {
	ID     segment.ID
	groups []Group
	tags   map[sharedlog.Tag]*[]uint32 // ordinals of groups
}

// NewPart returns the index of a segment without groups.
func NewPart(id segment.ID) *Part {
	return &Part{ID: id, tags: make(map[sharedlog.Tag]*[]uint32)}
}

// Add enters the segment's next group; its records count only if it has effect.
// The tags' strings are kept.
func (p *Part) Add(g Group, records []sharedlog.Record) {
	n := uint32(len(p.groups))
	p.groups = append(p.groups, g)
	if !g.Effect {
		return
	}
	for i := range records {
		for _, t := range records[i].Tags {
			l := p.tags[t]
			if l == nil {
				l = new([]uint32)
				p.tags[t] = l
			}
			if k := len(*l); k == 0 || (*l)[k-1] != n {
				*l = append(*l, n)
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

// window bounds how many groups one find looks at, so that a long posting list
// costs no more than what is returned.
const window = 512

// find appends the places of groups that carry one of tags and have records in
// [from, upto), in order, at most about limit bytes of them but at least one. It
// returns from where to go on, upto if nothing is left.
func (p *Part) find(dst []Place, tags []sharedlog.Tag, from, upto sharedlog.LSN, limit int64) ([]Place, sharedlog.LSN) {
	start := uint32(sort.Search(len(p.groups), func(i int) bool { return p.groups[i].End() > from }))
	var found []uint32
	for {
		// The nearest group any tag has, and all within a window behind it.
		nearest := uint32(len(p.groups))
		for _, t := range tags {
			if l := p.tags[t]; l != nil {
				if i, _ := slices.BinarySearch(*l, start); i < len(*l) {
					nearest = min(nearest, (*l)[i])
				}
			}
		}
		if int(nearest) == len(p.groups) || p.groups[nearest].First >= upto {
			return dst, upto
		}
		start = nearest
		found = found[:0]
		for _, t := range tags {
			if l := p.tags[t]; l != nil {
				i, _ := slices.BinarySearch(*l, start)
				for ; i < len(*l) && (*l)[i] < start+window; i++ {
					found = append(found, (*l)[i])
				}
			}
		}
		slices.Sort(found)
		found = slices.Compact(found)
		for _, n := range found {
			g := &p.groups[n]
			if g.First >= upto {
				return dst, upto
			}
			if limit <= 0 {
				return dst, g.First
			}
			limit -= int64(g.Size)
			dst = append(dst, Place{First: g.First, Location: segment.Location{ID: p.ID, Offset: g.Offset, Size: g.Size}})
		}
		start += window
	}
}

// last returns the newest group of tag that begins below an LSN.
func (p *Part) last(tag sharedlog.Tag, below sharedlog.LSN) (Place, bool) {
	l := p.tags[tag]
	if l == nil {
		return Place{}, false
	}
	i := sort.Search(len(*l), func(i int) bool { return p.groups[(*l)[i]].First >= below })
	if i == 0 {
		return Place{}, false
	}
	g := &p.groups[(*l)[i-1]]
	return Place{First: g.First, Location: segment.Location{ID: p.ID, Offset: g.Offset, Size: g.Size}}, true
}

// lastOf returns the LSN behind the last group of each tag.
func (p *Part) lastOf(f func(tag sharedlog.Tag, end sharedlog.LSN) bool) bool {
	for t, l := range p.tags {
		if !f(t, p.groups[(*l)[len(*l)-1]].End()) {
			return false
		}
	}
	return true
}

const footerVersion = 1

// AppendFooter appends the Part's encoding to dst.
func (p *Part) AppendFooter(dst []byte) []byte {
	dst = append(dst, footerVersion)
	dst = binary.AppendUvarint(dst, uint64(len(p.groups)))
	var lsn sharedlog.LSN
	var offset, position uint64
	for i := range p.groups {
		g := &p.groups[i]
		effect := uint64(0)
		if g.Effect {
			effect = 1
		}
		dst = binary.AppendUvarint(dst, uint64(g.Offset)-offset)
		dst = binary.AppendUvarint(dst, uint64(g.Size))
		dst = binary.AppendUvarint(dst, g.Position-position)
		dst = binary.AppendUvarint(dst, uint64(g.Records)<<1|effect)
		dst = binary.AppendUvarint(dst, uint64(g.First-lsn))
		offset, position, lsn = uint64(g.Offset)+uint64(g.Size), g.Position+uint64(g.Records), g.End()
	}
	dst = binary.AppendUvarint(dst, uint64(len(p.tags)))
	for _, t := range slices.Sorted(maps.Keys(p.tags)) {
		l := *p.tags[t]
		dst = binary.AppendUvarint(dst, uint64(len(t)))
		dst = append(dst, t...)
		dst = binary.AppendUvarint(dst, uint64(len(l)))
		before := uint32(0)
		for _, n := range l {
			dst = binary.AppendUvarint(dst, uint64(n-before))
			before = n
		}
	}
	return dst
}

// ParseFooter decodes a footer. The error says what is wrong with the bytes;
// their checksum is the segment store's business.
func ParseFooter(id segment.ID, b []byte) (*Part, error) {
	if len(b) == 0 || b[0] != footerVersion {
		return nil, sharedlog.Errorf(sharedlog.KindVersion, "index of segment %v is of a version that this program does not read", id)
	}
	bad := false
	b = b[1:]
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			bad, b = true, nil
			return 0
		}
		b = b[n:]
		return v
	}
	count := func(size int) int {
		n := number()
		if n > uint64(len(b)/size) {
			bad, b = true, nil
			return 0
		}
		return int(n)
	}
	p := NewPart(id)
	p.groups = make([]Group, count(5))
	var lsn sharedlog.LSN
	var offset, position uint64
	for i := range p.groups {
		g := &p.groups[i]
		offset += number()
		size := number()
		position += number()
		re := number()
		lsn += sharedlog.LSN(number())
		if offset+size > 1<<32 || re>>1 > 1<<32-1 {
			bad = true
		}
		*g = Group{Offset: uint32(offset), Size: uint32(size), Records: uint32(re >> 1), Effect: re&1 == 1, Position: position, First: lsn}
		offset, position, lsn = offset+size, position+re>>1, g.End()
	}
	for range count(2) {
		n := count(1)
		tag := sharedlog.Tag(b[:n])
		b = b[n:]
		l := make([]uint32, count(1))
		at := uint64(0)
		for i := range l {
			at += number()
			if at >= uint64(len(p.groups)) {
				bad = true
				at = 0
			}
			l[i] = uint32(at)
		}
		if len(l) == 0 {
			bad = true
		}
		p.tags[tag] = &l
	}
	if bad || len(b) > 0 {
		return nil, fmt.Errorf("the index does not add up")
	}
	return p, nil
}
