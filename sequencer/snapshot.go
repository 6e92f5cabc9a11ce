package sequencer

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

const (
	snapshotMagic   = "TRSQ"
	snapshotVersion = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendSnapshot appends the state's encoding to dst:
//
//	 0      4         6                                        end-4    end
//	+------+---------+----------------------------------------+--------+
//	| TRSQ | version | body                                   | crc32c |
//	|      | LE u16  |                                        | LE u32 |
//	+------+---------+----------------------------------------+--------+
//	body  = applied tail generation
//	        n { incarnation n{ addr } opened length sealed sealedAt }   shards 1 … n
//	        n { key value }                                             keys ascending
//	        n { tag before }                                            tags ascending
//
// with numbers and strings as in AppendEntry and sealed as 0 or 1. The checksum
// covers all bytes before it. Equal states have equal encodings.
func (s *State) AppendSnapshot(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, snapshotMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, snapshotVersion)
	dst = binary.AppendUvarint(dst, s.applied)
	dst = binary.AppendUvarint(dst, uint64(s.tail))
	dst = binary.AppendUvarint(dst, s.generation)
	dst = binary.AppendUvarint(dst, uint64(len(s.shards)))
	for i := range s.shards {
		sh := &s.shards[i]
		dst = binary.AppendUvarint(dst, sh.Incarnation)
		dst = appendAddrs(dst, sh.Addrs)
		dst = binary.AppendUvarint(dst, uint64(sh.Opened))
		dst = binary.AppendUvarint(dst, sh.Length)
		sealed := uint64(0)
		if sh.Sealed {
			sealed = 1
		}
		dst = binary.AppendUvarint(dst, sealed)
		dst = binary.AppendUvarint(dst, uint64(sh.SealedAt))
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.meta)))
	for _, k := range slices.Sorted(maps.Keys(s.meta)) {
		dst = appendBytes(dst, k)
		dst = appendBytes(dst, s.meta[k])
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.trims)))
	for _, t := range slices.Sorted(maps.Keys(s.trims)) {
		dst = appendBytes(dst, t)
		dst = binary.AppendUvarint(dst, uint64(s.trims[t]))
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// RestoreState is the inverse of AppendSnapshot. Another version is
// sharedlog.ErrVersion, damage is ErrEncoding. The state shares no memory with b.
func RestoreState(b []byte) (*State, error) {
	head := len(snapshotMagic) + 2
	if len(b) < head+4 || string(b[:len(snapshotMagic)]) != snapshotMagic ||
		crc32.Checksum(b[:len(b)-4], castagnoli) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("%w: snapshot", ErrEncoding)
	}
	if v := binary.LittleEndian.Uint16(b[len(snapshotMagic):]); v != snapshotVersion {
		return nil, sharedlog.Errorf(sharedlog.KindVersion, "snapshot of the order has version %d, this program reads %d", v, snapshotVersion)
	}
	r := reader{b: b[head : len(b)-4]}
	s := NewState()
	s.applied, s.tail, s.generation = r.uvarint(), sharedlog.LSN(r.uvarint()), r.uvarint()
	n := r.count(6)
	s.shards = make([]Shard, 0, n)
	for i := range n {
		sh := Shard{ID: ShardID(i + 1), Incarnation: r.uvarint(), Addrs: r.addrs()}
		sh.Opened, sh.Length = sharedlog.LSN(r.uvarint()), r.uvarint()
		sealed := r.uvarint()
		r.bad = r.bad || sealed > 1
		sh.Sealed, sh.SealedAt = sealed == 1, sharedlog.LSN(r.uvarint())
		s.shards = append(s.shards, sh)
	}
	last := ""
	for i := range r.count(2) {
		k, v := r.string(), r.bytes()
		r.bad = r.bad || (i > 0 && k <= last) || len(v) == 0
		s.meta[k], last = v, k
	}
	last = ""
	for i := range r.count(2) {
		t, before := r.string(), r.uvarint()
		r.bad = r.bad || (i > 0 && t <= last) || before == 0
		s.trims[sharedlog.Tag(t)], last = sharedlog.LSN(before), t
	}
	if r.bad || len(r.b) != 0 {
		return nil, fmt.Errorf("%w: snapshot", ErrEncoding)
	}
	return s, nil
}
