package sequencer

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/sharedlog"
)

const (
	snapshotMagic = "TRSQ"
	// snapshotVersion is used at level 2 and above, snapshotLevel1 below, so that all programs of
	// the cluster can read each other's snapshots.
	snapshotVersion = 2
	snapshotLevel1  = 1
)

// AppendSnapshot appends the state's encoding to dst:
//
//	 0      4         6                                        end-4    end
//	+------+---------+----------------------------------------+--------+
//	| TRSQ | version | body                                   | crc32c |
//	|      | LE u16  |                                        | LE u32 |
//	+------+---------+----------------------------------------+--------+
//	version 1, of a state at level 1:
//	body  = applied tail generation
//	        n { incarnation n{ addr } opened length sealed sealedAt }   shards 1 … n
//	        n { key value }                                             keys ascending
//	        n { tag before }                                            tags ascending
//
//	version 2, of a state at level 2 or above:
//	body  = applied tail generation level opened floor
//	        n { id incarnation n{ addr } opened length lost sealed sealedAt }   ids ascending
//	        n { key value }                                             keys ascending
//	        n { tag before }                                            tags ascending
//	        n { addr state }                                            addresses ascending
//	        n { id addr store state }                                   ids ascending
//
// Numbers and strings are encoded as in AppendEntry, sealed as 0 or 1. The checksum covers all
// bytes before it. Equal states have equal encodings.
func (s *State) AppendSnapshot(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, snapshotMagic...)
	if s.level < 2 {
		dst = binary.LittleEndian.AppendUint16(dst, snapshotLevel1)
	} else {
		dst = binary.LittleEndian.AppendUint16(dst, snapshotVersion)
	}
	dst = binary.AppendUvarint(dst, s.applied)
	dst = binary.AppendUvarint(dst, uint64(s.tail))
	dst = binary.AppendUvarint(dst, s.generation)
	if s.level >= 2 {
		dst = binary.AppendUvarint(dst, uint64(s.level))
		dst = binary.AppendUvarint(dst, s.opened)
		dst = binary.AppendUvarint(dst, uint64(s.floor))
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.shards)))
	for i := range s.shards {
		sh := &s.shards[i]
		if s.level >= 2 {
			dst = binary.AppendUvarint(dst, uint64(sh.ID))
		}
		dst = binary.AppendUvarint(dst, sh.Incarnation)
		dst = appendAddrs(dst, sh.Addrs)
		dst = binary.AppendUvarint(dst, uint64(sh.Opened))
		dst = binary.AppendUvarint(dst, sh.Length)
		if s.level >= 2 {
			dst = binary.AppendUvarint(dst, sh.Lost)
		}
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
	if s.level >= 2 {
		dst = binary.AppendUvarint(dst, uint64(len(s.nodes)))
		for _, addr := range slices.Sorted(maps.Keys(s.nodes)) {
			dst = appendNode(dst, Node{addr, s.nodes[addr]})
		}
		dst = binary.AppendUvarint(dst, uint64(len(s.sequencers)))
		for _, q := range s.sequencers {
			dst = appendSequencer(dst, q)
		}
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], codec.Castagnoli))
}

// RestoreState decodes a snapshot. It returns sharedlog.ErrVersion for another version and
// ErrEncoding for damaged data. The state shares no memory with b.
func RestoreState(b []byte) (*State, error) {
	head := len(snapshotMagic) + 2
	if len(b) < head+4 || string(b[:len(snapshotMagic)]) != snapshotMagic ||
		crc32.Checksum(b[:len(b)-4], codec.Castagnoli) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("%w: snapshot", ErrEncoding)
	}
	version := binary.LittleEndian.Uint16(b[len(snapshotMagic):])
	if version != snapshotVersion && version != snapshotLevel1 {
		return nil, sharedlog.Errorf(sharedlog.KindVersion, "snapshot of the order has version %d, this program reads versions %d and %d: run the newer program that wrote it",
			version, snapshotLevel1, snapshotVersion)
	}
	r := reader{b: b[head : len(b)-4]}
	s := NewStateAt(1)
	s.applied, s.tail, s.generation = r.uvarint(), sharedlog.LSN(r.uvarint()), r.uvarint()
	if version >= 2 {
		s.level, s.opened, s.floor = r.uint32(), r.uvarint(), sharedlog.LSN(r.uvarint())
		r.bad = r.bad || s.level < 2 || s.opened > 1<<32-1 || s.floor < sharedlog.First
		if s.level > Level {
			return nil, sharedlog.Errorf(sharedlog.KindVersion, "snapshot of the order is of feature level %d, this program supports level %d: run the newer program that the rest of the cluster runs", s.level, Level)
		}
	}
	r.restoreShards(s, version)
	r.restoreTables(s)
	if version >= 2 {
		r.restoreMembers(s)
	}
	if r.bad || len(r.b) != 0 {
		return nil, fmt.Errorf("%w: snapshot", ErrEncoding)
	}
	return s, nil
}

func (r *reader) restoreShards(s *State, version uint16) {
	n := r.count(6)
	s.shards = make([]Shard, 0, n)
	last := ShardID(0)
	for i := range n {
		sh := Shard{ID: ShardID(i + 1)}
		if version >= 2 {
			sh.ID = r.shard()
		}
		r.bad = r.bad || sh.ID <= last
		last = sh.ID
		sh.Incarnation, sh.Addrs = r.uvarint(), r.addrs()
		sh.Opened, sh.Length = sharedlog.LSN(r.uvarint()), r.uvarint()
		if version >= 2 {
			sh.Lost = r.uvarint()
			r.bad = r.bad || sh.Lost > sh.Length
		}
		sealed := r.uvarint()
		r.bad = r.bad || sealed > 1
		sh.Sealed, sh.SealedAt = sealed == 1, sharedlog.LSN(r.uvarint())
		s.shards = append(s.shards, sh)
	}
	if version >= 2 {
		r.bad = r.bad || uint64(last) > s.opened
	} else {
		s.opened = uint64(last)
	}
}

func (r *reader) restoreTables(s *State) {
	last := ""
	for i := range r.count(2) {
		k, v := r.string(), r.bytes()
		r.bad = r.bad || (i > 0 && k <= last) || len(v) == 0
		s.set(k, v)
		last = k
	}
	last = ""
	for i := range r.count(2) {
		t, before := r.string(), sharedlog.LSN(r.uvarint())
		// Level 1 kept trim points at 1, which have no effect.
		r.bad = r.bad || (i > 0 && t <= last) || before == 0 || s.level >= 2 && before <= s.floor
		s.trim(sharedlog.Tag(t), before)
		last = t
	}
}

func (r *reader) restoreMembers(s *State) {
	last := ""
	for range r.count(2) {
		n := r.node()
		r.bad = r.bad || n.Addr <= last || n.State == NodeActive
		s.nodes[n.Addr], last = n.State, n.Addr
	}
	id := uint64(0)
	for range r.count(4) {
		q := r.sequencer()
		r.bad = r.bad || q.ID <= id
		s.sequencers, id = append(s.sequencers, q), q.ID
	}
}
