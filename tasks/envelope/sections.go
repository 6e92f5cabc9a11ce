package envelope

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"

	"tailrace.dev/tailrace/sharedlog"
)

// Header identifies the producer of a Data or Changes record.
type Header struct {
	// Stage is the producer's stage (its index in the plan), Task its number in that stage.
	Stage, Task uint32
	// Instance is the number of the producer's instance, Commit the commit to which the record
	// belongs; commit numbers continue across instances.
	Instance, Commit uint64
	// Stream is the stream's index in the plan, 0 in a Changes record.
	Stream uint32
	// Epoch is the routing epoch in which keys were mapped to key groups
	// (pitfall T11).
	Epoch uint32
	// Part says that the record holds a part of its commit, in a group of its own before that of
	// the marker. A part of Data counts where the marker is, a part of Changes with the last record
	// of its commit's changes, which is not a part.
	Part bool
}

// version returns the version of a record with this header.
func (h *Header) version(k Kind) byte {
	switch {
	case k == Data && h.Part:
		return versionDataPart
	case k == Changes && h.Part:
		return versionChangesPart
	case k == Changes:
		return versionChanges
	}
	return version
}

// PartOf returns the header of a record of kind Data or Changes, and whether it is a part.
func PartOf(data []byte) (h Header, part bool, err error) {
	var s Sections
	h, err = s.Open(data)
	return h, h.Part, err
}

// Section is a batch of items of one key group. Group and Items are at most
// math.MaxInt32.
type Section struct {
	Group int
	Items int
	Data  []byte
}

// AppendSections appends a record of kind Data or Changes to dst and returns it. It copies the
// payloads, once. k must be Data or Changes: anything else would make a record that no parser
// accepts.
func AppendSections(dst []byte, k Kind, h Header, s []Section) []byte {
	dst = appendHead(dst, k, h, s)
	for i := range s {
		dst = append(dst, s[i].Data...)
	}
	return dst
}

// appendHead appends what is before the payloads.
func appendHead(dst []byte, k Kind, h Header, s []Section) []byte {
	dst = append(dst, byte(k), h.version(k))
	dst = binary.AppendUvarint(dst, uint64(h.Stage))
	dst = binary.AppendUvarint(dst, uint64(h.Task))
	dst = binary.AppendUvarint(dst, h.Instance)
	dst = binary.AppendUvarint(dst, h.Commit)
	dst = binary.AppendUvarint(dst, uint64(h.Stream))
	dst = binary.AppendUvarint(dst, uint64(h.Epoch))
	directory := 0
	for i := range s {
		directory += uvarintLen(uint64(s[i].Group)) + uvarintLen(uint64(s[i].Items)) + uvarintLen(uint64(len(s[i].Data)))
	}
	dst = binary.AppendUvarint(dst, uint64(directory))
	for i := range s {
		dst = binary.AppendUvarint(dst, uint64(s[i].Group))
		dst = binary.AppendUvarint(dst, uint64(s[i].Items))
		dst = binary.AppendUvarint(dst, uint64(len(s[i].Data)))
	}
	return dst
}

// Packer makes records as AppendSections does, each in memory of its own, of exactly its size. Its
// zero value is ready to use. It exists for speed: it keeps its scratch space, and bytes.Join does
// not zero memory that is overwritten at once.
type Packer struct {
	head   []byte
	pieces [][]byte
}

// Pack returns a new record of kind Data or Changes, which the caller owns.
func (p *Packer) Pack(k Kind, h Header, s []Section) []byte {
	p.head = appendHead(p.head[:0], k, h, s)
	p.pieces = append(p.pieces[:0], p.head)
	for i := range s {
		p.pieces = append(p.pieces, s[i].Data)
	}
	data := bytes.Join(p.pieces, nil)
	clear(p.pieces) // the payloads are the caller's
	return data
}

func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// Sections iterates over the sections of a record in place: it copies and allocates nothing, and
// Section.Data aliases the record. The zero value is ready to Open, and can be opened again.
//
//	h, err := s.Open(data)
//	for sec, ok := s.Next(); ok; sec, ok = s.Next() { … }
//	err = s.Err()
type Sections struct {
	kind      Kind
	directory []byte // what Next has not read
	payload   []byte
	err       error
}

// Open starts iterating over a record of kind Data or Changes. After an error (kinds as for KindOf)
// there are no sections.
func (s *Sections) Open(data []byte) (Header, error) {
	*s = Sections{}
	k, err := KindOf(data)
	if err == nil && k != Data && k != Changes {
		err = sharedlog.Errorf(sharedlog.KindCorrupt, "a %v record where a data or changes record belongs", k)
	}
	if err != nil {
		s.err = err
		return Header{}, err
	}
	s.kind = k
	r := uvarints{b: data[prefix:]}
	h := Header{
		Stage: uint32(r.next(math.MaxUint32)), Task: uint32(r.next(math.MaxUint32)),
		Instance: r.next(math.MaxUint64), Commit: r.next(math.MaxUint64),
		Stream: uint32(r.next(math.MaxUint32)), Epoch: uint32(r.next(math.MaxUint32)),
		Part: k == Data && data[1] == versionDataPart || k == Changes && data[1] == versionChangesPart,
	}
	dir := r.next(math.MaxInt32)
	switch {
	case r.bad:
		s.err = damaged(k, "its header is not seven integers")
	case dir > uint64(len(r.b)):
		s.err = damaged(k, "its directory ends beyond the record")
	}
	if s.err != nil {
		return Header{}, s.err
	}
	s.directory, s.payload = r.b[:dir], r.b[dir:]
	return h, nil
}

// Next returns the next section; ok is false if there is none, or none that can be read: Err
// distinguishes the two.
func (s *Sections) Next() (sec Section, ok bool) {
	if len(s.directory) == 0 {
		if len(s.payload) != 0 && s.err == nil {
			s.err = damaged(s.kind, "bytes behind the last section")
		}
		return Section{}, false
	}
	r := uvarints{b: s.directory}
	group, items, size := r.next(math.MaxInt32), r.next(math.MaxInt32), r.next(math.MaxInt32)
	switch {
	case r.bad:
		s.err = damaged(s.kind, "a directory entry is not three integers")
	case size > uint64(len(s.payload)):
		s.err = damaged(s.kind, "a section ends beyond the record")
	}
	if s.err != nil {
		s.directory, s.payload = nil, nil
		return Section{}, false
	}
	// Limit the capacity too: an append by the caller must not run into the next section.
	sec = Section{Group: int(group), Items: int(items), Data: s.payload[:size:size]}
	s.directory, s.payload = r.b, s.payload[size:]
	return sec, true
}

// Err returns the first error in the record. It is final once Next has returned false.
func (s *Sections) Err() error { return s.err }

// uvarints reads integers one after the other and records if one was missing, not minimal, or above
// its limit.
type uvarints struct {
	b   []byte
	bad bool
}

func (r *uvarints) next(limit uint64) uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 { // one byte: nearly always
		v := uint64(r.b[0])
		r.b = r.b[1:]
		if v > limit {
			r.bad = true
		}
		return v
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit || r.b[n-1] == 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}
