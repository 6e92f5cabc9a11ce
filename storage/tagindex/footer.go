package tagindex

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

const footerVersion = 1

var errFooter = errors.New("the index is malformed")

// AppendFooter appends the encoding of the Part to dst; see the package comment. It works only for
// a Part that was built with Add, not for one from ParseFooter.
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
	before := sharedlog.Tag("")
	var raw []byte
	for _, t := range slices.Sorted(maps.Keys(p.tags)) {
		l := p.tags[t]
		shared := commonPrefix(before, t)
		before = t
		raw = raw[:0]
		last := uint32(0)
		for _, n := range l.rows {
			raw = binary.AppendUvarint(raw, uint64(n-last))
			last = n
		}
		dst = binary.AppendUvarint(dst, uint64(shared))
		dst = binary.AppendUvarint(dst, uint64(len(t)-shared))
		dst = append(dst, t[shared:]...)
		dst = binary.AppendUvarint(dst, uint64(lsn-l.end))
		dst = binary.AppendUvarint(dst, uint64(len(l.rows)))
		dst = binary.AppendUvarint(dst, uint64(len(raw)))
		dst = append(dst, raw...)
	}
	return dst
}

func commonPrefix(a, b sharedlog.Tag) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// ParseFooter returns the Part of a footer, and retains b. The segment store verifies the checksum;
// ParseFooter verifies that no later use of the Part can fail. Errors: KindVersion, or a
// description of the damage.
func ParseFooter(id segment.ID, b []byte) (*Part, error) {
	if len(b) == 0 || b[0] != footerVersion {
		return nil, sharedlog.Errorf(sharedlog.KindVersion, "index of segment %v is of a version that this program does not read", id)
	}
	r := codec.Reader{B: b[1:]}
	p := NewPart(id)
	lsn, err := p.parseGroups(&r)
	if err != nil {
		return nil, err
	}
	p.memory = int64(len(b)) + 32*int64(len(p.groups))
	if err := p.parseTags(&r, lsn); err != nil {
		return nil, err
	}
	if len(r.B) > 0 {
		return nil, errFooter
	}
	return p, nil
}

// Extent reads the extent of a segment from its footer. Errors: KindVersion, KindCorrupt.
func Extent(id segment.ID, b []byte) (x segment.Extent, err error) {
	if len(b) == 0 || b[0] != footerVersion {
		return x, sharedlog.Errorf(sharedlog.KindVersion, "index of segment %v is of a version that this program does not read", id)
	}
	p := NewPart(id)
	x.End, err = p.parseGroups(&codec.Reader{B: b[1:]})
	if err != nil || len(p.groups) == 0 {
		return x, sharedlog.Errorf(sharedlog.KindCorrupt, "footer of segment %v: %w", id, errFooter)
	}
	first, last := &p.groups[0], &p.groups[len(p.groups)-1]
	x.From, x.To, x.First = first.Position, last.Position+uint64(last.Records), first.First
	return x, nil
}

// parseGroups returns the LSN after the last group.
func (p *Part) parseGroups(r *codec.Reader) (sharedlog.LSN, error) {
	n := r.Count(5)
	p.groups = make([]Group, 0, n)
	var offset, position, lsn uint64
	for range n {
		gap, size := r.Uvarint(), r.Uvarint()
		position += r.Uvarint()
		recs := r.Uvarint()
		lsn += r.Uvarint()
		records, effect := recs>>1, recs&1 == 1
		if r.Bad || gap > 1<<32 || size > 1<<32 || offset+gap+size >= 1<<32 || records == 0 || records >= 1<<32 {
			return 0, errFooter
		}
		offset += gap
		p.groups = append(p.groups, Group{
			Offset: uint32(offset), Size: uint32(size), Records: uint32(records), Effect: effect,
			Position: position, First: sharedlog.LSN(lsn),
		})
		offset, position, lsn = offset+size, position+records, lsn+records
	}
	if r.Bad {
		return 0, errFooter
	}
	return sharedlog.LSN(lsn), nil
}

func (p *Part) parseTags(r *codec.Reader, end sharedlog.LSN) error {
	n := r.Count(6)
	p.tags = make(map[sharedlog.Tag]*posting, n)
	before := sharedlog.Tag("")
	for range n {
		shared := r.Uvarint()
		suffix := r.Bytes()
		back, count := r.Uvarint(), r.Uvarint()
		raw := r.Bytes()
		if r.Bad || shared > uint64(len(before)) || back > uint64(end) || !checkGaps(raw, count, len(p.groups)) {
			return errFooter
		}
		t := before[:shared] + sharedlog.Tag(suffix)
		if t <= before {
			return errFooter
		}
		p.tags[t] = &posting{end: end - sharedlog.LSN(back), raw: raw, count: int(count)}
		p.memory += tagMemory(t, int(count))
		before = t
	}
	if r.Bad {
		return errFooter
	}
	return nil
}

// checkGaps reports whether raw holds count rising ordinals below groups, at least one.
func checkGaps(raw []byte, count uint64, groups int) bool {
	r := codec.Reader{B: raw}
	n, seen := uint64(0), uint64(0)
	for len(r.B) > 0 {
		d := r.Uvarint()
		if r.Bad || seen > 0 && d == 0 || d >= uint64(groups) || n+d >= uint64(groups) {
			return false
		}
		n += d
		seen++
	}
	return seen == count && count > 0
}
