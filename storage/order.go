package storage

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/internal/deque"
	"tailrace.dev/tailrace/sharedlog"
)

// Head holds what the order needs of a group. It does not hold the data.
type Head struct {
	Position uint64 // of its first record in the sublog, from 0
	Records  uint64
	Writer   string
	Number   uint64
	If       sharedlog.Condition
}

// Outcome is the outcome of an ordered group. Its records have the LSNs First, First+1, …, and readers
// see them only if Effect is true.
type Outcome struct {
	Head
	First  sharedlog.LSN
	Effect bool
}

// event is an entry of the metalog that concerns this shard.
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

// Order computes LSNs and outcomes of one shard's groups. See the package comment.
type Order struct {
	meta   map[string][]byte   // as of the last event applied
	void   map[string]struct{} // writers that had a void group in this shard
	names  int                 // bytes of their names
	groups deque.Deque[Head]   // held, without outcome
	events deque.Deque[event]  // not applied yet, because the sublog is behind

	held     uint64 // length of the sublog passed to Hold
	assigned uint64 // length with outcomes
	ordered  uint64 // length covered by cuts. Invariant: assigned ≤ ordered
	sealed   bool
	sealedAt sharedlog.LSN
	next     sharedlog.LSN // LSN of position assigned, inside the cut at the front of events
	inCut    bool
}

// NewOrder returns the order of a shard that starts at position 0, with the metadata as of the
// place where it was opened. It does not retain the map.
func NewOrder(meta map[string][]byte) *Order {
	return &Order{meta: maps.Clone(orEmpty(meta)), void: map[string]struct{}{}}
}

func orEmpty(m map[string][]byte) map[string][]byte {
	if m == nil {
		return map[string][]byte{}
	}
	return m
}

// Hold passes the next group of the sublog to the order. The order retains the strings and slices
// of h until Next has returned the group. It ignores groups that a seal has dropped.
func (o *Order) Hold(h Head) {
	if o.sealed && h.Position >= o.ordered {
		return // invariant 6
	}
	o.held = h.Position + h.Records
	o.groups.Push(h)
}

// Retract removes the newest groups, from a position on, because they could not be written. No cut
// may cover them.
func (o *Order) Retract(position uint64) {
	for o.groups.Len() > 0 && o.groups.Back().Position >= position {
		o.held = o.groups.Back().Position
		o.groups.PopBack()
	}
}

// Cut applies this shard's part of a cut: positions below length are ordered, and the first
// position that was not ordered before has the LSN first.
func (o *Order) Cut(length uint64, first sharedlog.LSN) {
	if o.sealed || length <= o.ordered {
		return
	}
	o.ordered = length
	o.events.Push(event{kind: eventCut, length: length, lsn: first})
}

// Change applies a metadata change that took effect. An empty value means that the key was deleted.
func (o *Order) Change(key string, value []byte) {
	o.events.Push(event{kind: eventChange, key: key, value: value})
}

// Seal applies the seal with its place. Groups that no cut covers are dropped.
func (o *Order) Seal(place sharedlog.LSN) {
	if o.sealed {
		return
	}
	o.sealed, o.sealedAt = true, place
	o.Retract(o.ordered)
}

// Rescue gives up the positions of a sealed shard from length on that have no outcome yet. A group
// that reaches beyond length is given up as a whole.
func (o *Order) Rescue(length uint64) {
	length = max(length, o.assigned)
	if !o.sealed || length >= o.ordered {
		return
	}
	o.ordered = length
	for o.groups.Len() > 0 && o.groups.Back().Position+o.groups.Back().Records > length {
		o.held = o.groups.Back().Position
		o.groups.PopBack()
	}
	for i := range o.events.Len() {
		if ev := o.events.At(i); ev.kind == eventCut {
			ev.length = min(ev.length, length)
		}
	}
}

// Sealed returns the seal's place, and whether the shard is sealed.
func (o *Order) Sealed() (sharedlog.LSN, bool) { return o.sealedAt, o.sealed }

// Ordered returns the length that cuts cover.
func (o *Order) Ordered() uint64 { return o.ordered }

// Held returns the length of the sublog that was passed to Hold and not dropped.
func (o *Order) Held() uint64 { return o.held }

// Assigned returns the length with outcomes.
func (o *Order) Assigned() uint64 { return o.assigned }

// Waiting returns the LSN of the first ordered position that is not held yet, and whether there is
// one. It is valid after Next has returned ok == false.
func (o *Order) Waiting() (sharedlog.LSN, bool) { return o.next, o.events.Len() > 0 }

// Next returns the next group's outcome. ok is false if Next needs more of the sublog or of the
// metalog first. A cut that ends inside a group is ErrCorrupt: no replica ever reports such a
// length.
func (o *Order) Next() (f Outcome, ok bool, err error) {
	for o.events.Len() > 0 {
		ev := o.events.Front()
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
		o.events.PopFront()
	}
	return Outcome{}, false, nil
}

// assign assigns LSNs to the next group of a cut and determines its outcome.
func (o *Order) assign(end uint64) (Outcome, bool, error) {
	if o.groups.Len() == 0 {
		return Outcome{}, false, nil
	}
	h := *o.groups.Front()
	if h.Position != o.assigned || h.Position+h.Records > end {
		return Outcome{}, false, sharedlog.Errorf(sharedlog.KindCorrupt,
			"the group of %q, number %d, has positions %d to %d; a cut continues at %d and ends at %d",
			h.Writer, h.Number, h.Position, h.Position+h.Records, o.assigned, end)
	}
	o.groups.PopFront()
	f := Outcome{Head: h, First: o.next, Effect: o.judge(h)}
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

// A mark is the state from which a later Order continues when all held groups have outcomes: the
// position, and the writers whose later groups are void.
const (
	markMagic   = "TRSH"
	markVersion = 1
)

// MarkSize returns the maximum size of a mark in bytes (AppendMark).
func (o *Order) MarkSize() int {
	return len(markMagic) + 2 + 2*binary.MaxVarintLen64 + o.names + binary.MaxVarintLen32*len(o.void) + 4
}

// AppendMark appends the order's state to dst. Every ordered group must have its outcome (Next has
// returned ok == false) and no group may be held beyond.
//
//	"TRSH" | version u16 LE | ordered | n { writer, ascending } | crc32c u32 LE
//
// Numbers are uvarints; strings are encoded as their length and bytes. The mark does not contain
// the metadata: the sequencer's snapshot at the same place does.
func (o *Order) AppendMark(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, markMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, markVersion)
	dst = binary.AppendUvarint(dst, o.assigned)
	dst = binary.AppendUvarint(dst, uint64(len(o.void)))
	for _, w := range slices.Sorted(maps.Keys(o.void)) {
		dst = codec.AppendString(dst, w)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], codec.Castagnoli))
}

// RestoreOrder returns the order that continues from a mark, with the metadata as of the mark's
// place. It returns ErrCorrupt for damaged data and ErrVersion for another version. It retains
// neither argument.
func RestoreOrder(mark []byte, meta map[string][]byte) (*Order, error) {
	corrupt := sharedlog.Errorf(sharedlog.KindCorrupt, "mark of a shard's order is damaged")
	head := len(markMagic) + 2
	if len(mark) < head+4 || string(mark[:len(markMagic)]) != markMagic ||
		crc32.Checksum(mark[:len(mark)-4], codec.Castagnoli) != binary.LittleEndian.Uint32(mark[len(mark)-4:]) {
		return nil, corrupt
	}
	if v := binary.LittleEndian.Uint16(mark[len(markMagic):]); v != markVersion {
		return nil, sharedlog.Errorf(sharedlog.KindVersion, "mark of a shard's order has version %d, this program reads %d", v, markVersion)
	}
	f := codec.Reader{B: mark[head : len(mark)-4]}
	o := NewOrder(meta)
	o.held = f.Uvarint()
	o.assigned, o.ordered = o.held, o.held
	for n := f.Uvarint(); n > 0 && !f.Bad; n-- {
		w := f.Text()
		f.Bad = f.Bad || w == ""
		o.markVoid(w)
	}
	if f.Bad || len(f.B) != 0 {
		return nil, corrupt
	}
	return o, nil
}
