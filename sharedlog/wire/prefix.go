package wire

import (
	"encoding/binary"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
)

// PrefixSize is the length of the prefix of a body on the wire:
//
//	 0        4        8        12        16
//	+--------+--------+--------+---------+------------+------------+
//	| crc32c | head   | data   | records | head       | data       |
//	| LE u32 | LE u32 | LE u32 | LE u32  |            |            |
//	+--------+--------+--------+---------+------------+------------+
const PrefixSize = 16

// Body is an encoded body with the fields of its prefix.
type Body struct {
	CRC     uint32
	Head    int    // length of the head
	Records int    // number of records
	Bytes   []byte // head and data
}

// AppendPrefix appends the prefix of a body that is given in parts.
func AppendPrefix(dst []byte, crc uint32, head, data, records int) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, crc)
	dst = le.AppendUint32(dst, uint32(head))
	dst = le.AppendUint32(dst, uint32(data))
	return le.AppendUint32(dst, uint32(records))
}

// AppendPrefix appends w's prefix.
func (w *Body) AppendPrefix(dst []byte) []byte {
	return AppendPrefix(dst, w.CRC, w.Head, len(w.Bytes)-w.Head, w.Records)
}

// Take takes a prefix and a body off the front of b, verifies the checksum, and returns the rest of
// b. w.Bytes aliases b.
func (w *Body) Take(b []byte) (rest []byte, err error) {
	if len(b) < PrefixSize {
		return nil, fmt.Errorf("%d bytes are too few for a group", len(b))
	}
	le := binary.LittleEndian
	head, data := uint64(le.Uint32(b[4:])), uint64(le.Uint32(b[8:]))
	if n := head + data; n > MaxSize || n > uint64(len(b)-PrefixSize) {
		return nil, fmt.Errorf("a group of %d bytes in a message that has %d left", n, len(b)-PrefixSize)
	}
	end := PrefixSize + int(head+data)
	*w = Body{CRC: le.Uint32(b), Head: int(head), Records: int(le.Uint32(b[12:])), Bytes: b[PrefixSize:end:end]}
	if c := CRC(w.Bytes); c != w.CRC {
		return nil, fmt.Errorf("checksum of a group is %08x, not %08x", c, w.CRC)
	}
	return b[end:], nil
}

// Encode sets w to the body of g, with record checksums and a copy of the data.
func (w *Body) Encode(g *sharedlog.Group, opens bool) {
	b := AppendHead(nil, g, opens, true)
	w.Head, w.Records = len(b), len(g.Records)
	for i := range g.Records {
		b = append(b, g.Records[i].Data...)
	}
	w.Bytes, w.CRC = b, CRC(b)
}

// Decode decodes w into d.
func (w *Body) Decode(d *Decoded) error { return d.Decode(w.Bytes, w.Head, w.Records) }
