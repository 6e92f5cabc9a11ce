package storage

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// A checkpoint is the state of an Order without the groups that it holds. A replica writes one from
// time to time; after a restart it continues from the checkpoint and the groups that its segments
// hold from Assigned on.
const (
	checkpointMagic   = "TRSK"
	checkpointVersion = 1
)

// AppendCheckpoint appends the order's state to dst:
//
//	"TRSK" | version u16 LE | assigned ordered sealed sealedAt inCut next
//	       | n { key value }  keys ascending | n { writer }  ascending
//	       | n { kind (cut: length first) (change: key value) } | crc32c u32 LE
//
// Numbers are uvarints; strings are encoded as their length and bytes.
func (o *Order) AppendCheckpoint(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, checkpointMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, checkpointVersion)
	for _, v := range []uint64{o.assigned, o.ordered, number(o.sealed), uint64(o.sealedAt), number(o.inCut), uint64(o.next), uint64(len(o.meta))} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, k := range slices.Sorted(maps.Keys(o.meta)) {
		dst = appendString(appendString(dst, k), o.meta[k])
	}
	dst = binary.AppendUvarint(dst, uint64(len(o.void)))
	for _, w := range slices.Sorted(maps.Keys(o.void)) {
		dst = appendString(dst, w)
	}
	dst = binary.AppendUvarint(dst, uint64(o.events.len()))
	for i := range o.events.len() {
		ev := o.events.at(i)
		dst = append(dst, byte(ev.kind))
		if ev.kind == eventCut {
			dst = binary.AppendUvarint(binary.AppendUvarint(dst, ev.length), uint64(ev.lsn))
		} else {
			dst = appendString(appendString(dst, ev.key), ev.value)
		}
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// RestoreCheckpoint decodes a checkpoint. The caller passes the groups from Assigned on to Hold
// again. It returns ErrCorrupt for damaged data and ErrVersion for another version. It does not
// retain b.
func RestoreCheckpoint(b []byte) (*Order, error) {
	head := len(checkpointMagic) + 2
	if len(b) < head+4 || string(b[:len(checkpointMagic)]) != checkpointMagic ||
		crc32.Checksum(b[:len(b)-4], castagnoli) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return nil, errCheckpoint
	}
	if v := binary.LittleEndian.Uint16(b[len(checkpointMagic):]); v != checkpointVersion {
		return nil, sharedlog.Errorf(sharedlog.KindVersion, "checkpoint of a shard's order has version %d, this program reads %d", v, checkpointVersion)
	}
	f := fields{b: b[head : len(b)-4]}
	o := NewOrder(nil)
	o.assigned, o.ordered = f.number(), f.number()
	o.held = o.assigned
	o.sealed, o.sealedAt = f.number() == 1, sharedlog.LSN(f.number())
	o.inCut, o.next = f.number() == 1, sharedlog.LSN(f.number())
	for n := f.number(); n > 0 && !f.bad; n-- {
		k := f.string()
		o.meta[k] = []byte(f.string())
	}
	for n := f.number(); n > 0 && !f.bad; n-- {
		o.markVoid(f.string())
	}
	for n := f.number(); n > 0 && !f.bad; n-- {
		switch kind := eventKind(f.byte()); kind {
		case eventCut:
			o.events.push(event{kind: kind, length: f.number(), lsn: sharedlog.LSN(f.number())})
		case eventChange:
			o.events.push(event{kind: kind, key: f.string(), value: []byte(f.string())})
		default:
			f.bad = true
		}
	}
	if f.bad || len(f.b) > 0 {
		return nil, errCheckpoint
	}
	return o, nil
}

var errCheckpoint = sharedlog.Errorf(sharedlog.KindCorrupt, "checkpoint of a shard's order is damaged")

func number(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func appendString[S ~string | ~[]byte](dst []byte, s S) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// fields decodes the fields that AppendCheckpoint encodes. bad is set by the first error and stays
// set.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) number() uint64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 {
		f.b, f.bad = nil, true
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) string() string {
	n := f.number()
	if n > uint64(len(f.b)) {
		f.b, f.bad = nil, true
		return ""
	}
	s := string(f.b[:n])
	f.b = f.b[n:]
	return s
}

func (f *fields) byte() byte {
	if len(f.b) == 0 {
		f.bad = true
		return 0
	}
	c := f.b[0]
	f.b = f.b[1:]
	return c
}
