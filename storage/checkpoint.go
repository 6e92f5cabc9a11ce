package storage

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"

	"tailrace.dev/tailrace/internal/codec"
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
		dst = codec.AppendString(codec.AppendString(dst, k), o.meta[k])
	}
	dst = binary.AppendUvarint(dst, uint64(len(o.void)))
	for _, w := range slices.Sorted(maps.Keys(o.void)) {
		dst = codec.AppendString(dst, w)
	}
	dst = binary.AppendUvarint(dst, uint64(o.events.Len()))
	for i := range o.events.Len() {
		ev := o.events.At(i)
		dst = append(dst, byte(ev.kind))
		if ev.kind == eventCut {
			dst = binary.AppendUvarint(binary.AppendUvarint(dst, ev.length), uint64(ev.lsn))
		} else {
			dst = codec.AppendString(codec.AppendString(dst, ev.key), ev.value)
		}
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], codec.Castagnoli))
}

// RestoreCheckpoint decodes a checkpoint. The caller passes the groups from Assigned on to Hold
// again. It returns ErrCorrupt for damaged data and ErrVersion for another version. It does not
// retain b.
func RestoreCheckpoint(b []byte) (*Order, error) {
	head := len(checkpointMagic) + 2
	if len(b) < head+4 || string(b[:len(checkpointMagic)]) != checkpointMagic ||
		crc32.Checksum(b[:len(b)-4], codec.Castagnoli) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return nil, errCheckpoint
	}
	if v := binary.LittleEndian.Uint16(b[len(checkpointMagic):]); v != checkpointVersion {
		return nil, sharedlog.Errorf(sharedlog.KindVersion, "checkpoint of a shard's order has version %d, this program reads %d", v, checkpointVersion)
	}
	f := codec.Reader{B: b[head : len(b)-4]}
	o := NewOrder(nil)
	o.assigned, o.ordered = f.Uvarint(), f.Uvarint()
	o.held = o.assigned
	o.sealed, o.sealedAt = f.Uvarint() == 1, sharedlog.LSN(f.Uvarint())
	o.inCut, o.next = f.Uvarint() == 1, sharedlog.LSN(f.Uvarint())
	for n := f.Uvarint(); n > 0 && !f.Bad; n-- {
		k := f.Text()
		o.meta[k] = []byte(f.Text())
	}
	for n := f.Uvarint(); n > 0 && !f.Bad; n-- {
		o.markVoid(f.Text())
	}
	for n := f.Uvarint(); n > 0 && !f.Bad; n-- {
		switch kind := eventKind(f.Byte()); kind {
		case eventCut:
			o.events.Push(event{kind: kind, length: f.Uvarint(), lsn: sharedlog.LSN(f.Uvarint())})
		case eventChange:
			o.events.Push(event{kind: kind, key: f.Text(), value: []byte(f.Text())})
		default:
			f.Bad = true
		}
	}
	if f.Bad || len(f.B) > 0 {
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
