package storage

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/sharedlog"
)

// A table of writers is stored beside a replica's segments and sent with copies, because segments
// are deleted when their records are trimmed: after that the table is the only record of the
// numbers in them. It holds no outcomes; those are read from the groups that still exist.
const (
	tableMagic   = "TRSW"
	tableVersion = 1
)

// AppendTable appends the table to dst. It covers the groups below the position upto:
//
//	"TRSW" | version u16 LE | upto | n { writer ordered void }  writers ascending | crc32c u32 LE
//
// Numbers are uvarints; strings are encoded as their length and bytes. ordered is the highest
// number that is in the shard; void is the first one without effect, 0 if all have effect.
func (t *Writers) AppendTable(dst []byte, upto uint64) []byte {
	start := len(dst)
	dst = append(dst, tableMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, tableVersion)
	dst = binary.AppendUvarint(dst, upto)
	names := slices.Collect(maps.Keys(t.table))
	names = slices.DeleteFunc(names, func(name string) bool {
		w := t.table[name]
		return max(w.decided, w.listed) < max(w.first, 1)
	})
	slices.Sort(names)
	dst = binary.AppendUvarint(dst, uint64(len(names)))
	for _, name := range names {
		w := t.table[name]
		dst = codec.AppendString(dst, name)
		dst = binary.AppendUvarint(dst, max(w.decided, w.listed))
		dst = binary.AppendUvarint(dst, w.voidFrom)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], codec.Castagnoli))
}

// RestoreWriters decodes a table. The caller passes the outcomes of the groups that still exist to
// Learn, in order. It returns ErrCorrupt for damaged data and ErrVersion for another version. It
// does not retain b.
func RestoreWriters(b []byte) (t *Writers, upto uint64, err error) {
	head := len(tableMagic) + 2
	if len(b) < head+4 || string(b[:len(tableMagic)]) != tableMagic ||
		crc32.Checksum(b[:len(b)-4], codec.Castagnoli) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return nil, 0, errTable
	}
	if v := binary.LittleEndian.Uint16(b[len(tableMagic):]); v != tableVersion {
		return nil, 0, sharedlog.Errorf(sharedlog.KindVersion, "table of a shard's writers has version %d, this program reads %d", v, tableVersion)
	}
	f := codec.Reader{B: b[head : len(b)-4]}
	t = NewWriters()
	upto = f.Uvarint()
	for n := f.Uvarint(); n > 0 && !f.Bad; n-- {
		name := f.Text()
		ordered, void := f.Uvarint(), f.Uvarint()
		f.Bad = f.Bad || name == "" || ordered == 0
		t.table[name] = &writer{last: ordered, listed: ordered, voidFrom: void}
	}
	if f.Bad || len(f.B) > 0 {
		return nil, 0, errTable
	}
	return t, upto, nil
}

var errTable = sharedlog.Errorf(sharedlog.KindCorrupt, "table of a shard's writers is damaged")
