package storage

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"tailrace.dev/tailrace/sharedlog"
)

// Head is what ordering needs to know of a group; the data is not among it.
type Head struct {
	Position uint64 // of its first record in the sublog, from 0
	Records  uint64
	Writer   string
	Number   uint64
	If       sharedlog.Condition
}

// Fate is what became of an ordered group: its records have the LSNs First,
// First+1, … and are shown if Effect holds.
type Fate struct {
	Head
	First  sharedlog.LSN
	Effect bool
}

// event is one entry of the metalog, as far as it concerns this shard.
type event struct {
	kind   eventKind
	length uint64        // cut
	lsn    sharedlog.LSN // cut: of the first position it adds
	key    string        // change
	value  []byte
}

type eventKind uint8

const (
	eventCut eventKind = iota
	eventChange
)

// Order computes LSNs and fates of one shard's groups. See the package comment.
type Order struct {
	meta   map[string][]byte   // as of the last event taken
	void   map[string]struct{} // writers that had a void group in this shard
	names  int                 // bytes of their names
	groups ring[Head]          // held and without a fate
	events ring[event]         // not taken yet: the sublog is behind

	held     uint64 // sublog length that was handed in
	assigned uint64 // length that has fates
	ordered  uint64 // length that cuts cover. Invariant: assigned ≤ ordered
	sealed   bool
	sealedAt sharedlog.LSN
	next     sharedlog.LSN // of position assigned, inside the cut at the head of events
	inCut    bool
}

// NewOrder returns the order of a shard that begins at position 0, under the
// metadata as of the place where it was opened. The map is not kept.
func NewOrder(meta map[string][]byte) *Order {
	return &Order{meta: maps.Clone(orEmpty(meta)), void: map[string]struct{}{}}
}

func orEmpty(m map[string][]byte) map[string][]byte {
	if m == nil {
		return map[string][]byte{}
	}
	return m
}

// Hold hands in the next group of the sublog. The strings and slices of h are
// kept until its fate was returned. Groups that a seal has dropped are ignored.
func (o *Order) Hold(h Head) {
	if o.sealed && h.Position >= o.ordered {
		return // invariant 6
	}
	o.held = h.Position + h.Records
	o.groups.push(h)
}

// Retract takes back the groups from a position on that were handed in last: they
// could not be written. None of them may be covered by a cut.
func (o *Order) Retract(position uint64) {
	for o.groups.len() > 0 && o.groups.back().Position >= position {
		o.held = o.groups.back().Position
		o.groups.popBack()
	}
}

// Cut hands in this shard's slice of a cut: positions below length are ordered,
// the first that was not before has the LSN first.
func (o *Order) Cut(length uint64, first sharedlog.LSN) {
	if o.sealed || length <= o.ordered {
		return
	}
	o.ordered = length
	o.events.push(event{kind: eventCut, length: length, lsn: first})
}

// Change hands in a metadata change that took effect (empty = deleted).
func (o *Order) Change(key string, value []byte) {
	o.events.push(event{kind: eventChange, key: key, value: value})
}

// Seal hands in the seal and its place. What no cut has covered is dropped.
func (o *Order) Seal(place sharedlog.LSN) {
	if o.sealed {
		return
	}
	o.sealed, o.sealedAt = true, place
	o.Retract(o.ordered)
}

// Rescue gives up the positions of a sealed shard from length on that have no fate yet:
// they are lost. A group that reaches beyond is given up with them.
func (o *Order) Rescue(length uint64) {
	length = max(length, o.assigned)
	if !o.sealed || length >= o.ordered {
		return
	}
	o.ordered = length
	for o.groups.len() > 0 && o.groups.back().Position+o.groups.back().Records > length {
		o.held = o.groups.back().Position
		o.groups.popBack()
	}
	for i := range o.events.len() {
		if ev := o.events.at(i); ev.kind == eventCut {
			ev.length = min(ev.length, length)
		}
	}
}

// Sealed tells whether the shard was sealed, and the place.
func (o *Order) Sealed() (sharedlog.LSN, bool) { return o.sealedAt, o.sealed }

// Ordered returns the length that cuts cover.
func (o *Order) Ordered() uint64 { return o.ordered }

// Held returns the length of the sublog that was handed in and not dropped.
func (o *Order) Held() uint64 { return o.held }

// Assigned returns the length that has fates.
func (o *Order) Assigned() uint64 { return o.assigned }

// Waiting returns the LSN of the first ordered position that is not held yet, and
// whether there is one. It holds after Next has said that there is no more.
func (o *Order) Waiting() (sharedlog.LSN, bool) { return o.next, o.events.len() > 0 }

// Next returns the next group's fate. ok is false when the sublog or the metalog
// must go on first. A cut that ends inside a group is ErrCorrupt: no report ever
// names such a length.
func (o *Order) Next() (f Fate, ok bool, err error) {
	for o.events.len() > 0 {
		ev := o.events.front()
		switch ev.kind {
		case eventChange:
			if len(ev.value) == 0 {
				delete(o.meta, ev.key)
			} else {
				o.meta[ev.key] = ev.value
			}
		case eventCut:
			if o.assigned < ev.length {
				if !o.inCut {
					o.inCut, o.next = true, ev.lsn
				}
				return o.assign(ev.length)
			}
			o.inCut = false
		}
		o.events.popFront()
	}
	return Fate{}, false, nil
}

// assign gives the next group of a cut its LSNs and judges it.
func (o *Order) assign(end uint64) (Fate, bool, error) {
	if o.groups.len() == 0 {
		return Fate{}, false, nil
	}
	h := *o.groups.front()
	if h.Position != o.assigned || h.Position+h.Records > end {
		return Fate{}, false, sharedlog.Errorf(sharedlog.KindCorrupt,
			"the group of %q, number %d, has positions %d to %d; a cut goes on at %d and ends at %d",
			h.Writer, h.Number, h.Position, h.Position+h.Records, o.assigned, end)
	}
	o.groups.popFront()
	f := Fate{Head: h, First: o.next, Effect: o.judge(h)}
	o.assigned += h.Records
	o.next += sharedlog.LSN(h.Records)
	return f, true, nil
}

func (o *Order) judge(h Head) bool {
	if len(o.void) > 0 {
		if _, v := o.void[h.Writer]; v {
			return false
		}
	}
	if h.If.Key == "" || bytes.Equal(o.meta[h.If.Key], h.If.Value) {
		return true
	}
	o.markVoid(strings.Clone(h.Writer))
	return false
}

func (o *Order) markVoid(writer string) {
	if _, known := o.void[writer]; !known {
		o.void[writer] = struct{}{}
		o.names += len(writer)
	}
}

// A mark is what a later Order needs to go on from where all groups held have
// fates: positions, and the writers whose groups are void from there on.
const (
	markMagic   = "TRSH"
	markVersion = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MarkSize returns how many bytes a mark has at the most (AppendMark).
func (o *Order) MarkSize() int {
	return len(markMagic) + 2 + 2*binary.MaxVarintLen64 + o.names + binary.MaxVarintLen32*len(o.void) + 4
}

// AppendMark appends the order's state to dst; it must be settled: every group
// ordered has its fate (Next has returned ok == false) and nothing is held
// beyond.
//
//	"TRSH" | version u16 LE | ordered | n { writer, ascending } | crc32c u32 LE
//
// with numbers as uvarints and strings as their length and bytes. The metadata is
// not among it: the sequencer's snapshot of the same place has it.
func (o *Order) AppendMark(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, markMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, markVersion)
	dst = binary.AppendUvarint(dst, o.assigned)
	dst = binary.AppendUvarint(dst, uint64(len(o.void)))
	for _, w := range slices.Sorted(maps.Keys(o.void)) {
		dst = binary.AppendUvarint(dst, uint64(len(w)))
		dst = append(dst, w...)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// RestoreOrder goes on from a mark, under the metadata as of its place. Damage is
// ErrCorrupt, another version ErrVersion. Nothing given is kept.
func RestoreOrder(mark []byte, meta map[string][]byte) (*Order, error) {
	corrupt := sharedlog.Errorf(sharedlog.KindCorrupt, "mark of a shard's order is damaged")
	head := len(markMagic) + 2
	if len(mark) < head+4 || string(mark[:len(markMagic)]) != markMagic ||
		crc32.Checksum(mark[:len(mark)-4], castagnoli) != binary.LittleEndian.Uint32(mark[len(mark)-4:]) {
		return nil, corrupt
	}
	if v := binary.LittleEndian.Uint16(mark[len(markMagic):]); v != markVersion {
		return nil, sharedlog.Errorf(sharedlog.KindVersion, "mark of a shard's order has version %d, this program reads %d", v, markVersion)
	}
	f := fields{b: mark[head : len(mark)-4]}
	o := NewOrder(meta)
	o.held = f.number()
	o.assigned, o.ordered = o.held, o.held
	for n := f.number(); n > 0 && !f.bad; n-- {
		w := f.string()
		f.bad = f.bad || w == ""
		o.markVoid(w)
	}
	if f.bad || len(f.b) != 0 {
		return nil, corrupt
	}
	return o, nil
}
