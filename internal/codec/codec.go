// Package codec holds what the log's formats on disk and on the network have in common: numbers are
// uvarints, strings are encoded as their length and bytes, and checksums are CRC32C. Package
// sequencer has a reader of its own, which refuses numbers that are not minimal: an entry of the
// metalog has one encoding.
package codec

import (
	"encoding/binary"
	"hash/crc32"
)

// Castagnoli is the table of CRC32C.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendString appends a string as its length and bytes.
func AppendString[S ~string | ~[]byte](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Reader takes fields off the front of B. When one is missing or malformed it sets Bad, which stays
// set; results are meaningless then.
type Reader struct {
	B   []byte
	Bad bool
}

// fail drops the rest of B.
func (r *Reader) fail() { r.B, r.Bad = nil, true }

// Uvarint takes a uvarint.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.B)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Count takes a uvarint that is a number of elements of at least size bytes each, so that memory is
// never allocated for more elements than B can contain.
func (r *Reader) Count(size int) int {
	n := r.Uvarint()
	if n > uint64(len(r.B)/size) {
		r.fail()
		return 0
	}
	return int(n)
}

// Bytes takes a string. The result aliases B; it is nil if the string is empty.
func (r *Reader) Bytes() []byte {
	n := r.Uvarint()
	if n > uint64(len(r.B)) {
		r.fail()
		return nil
	}
	b := r.B[:n:n]
	r.B = r.B[n:]
	if n == 0 {
		return nil
	}
	return b
}

// Text takes a string and copies it.
func (r *Reader) Text() string { return string(r.Bytes()) }

// Take takes n bytes. The result aliases B.
func (r *Reader) Take(n int) []byte {
	if uint(n) > uint(len(r.B)) {
		r.fail()
		return nil
	}
	b := r.B[:n:n]
	r.B = r.B[n:]
	return b
}

// Uint32 takes a little-endian number of four bytes.
func (r *Reader) Uint32() uint32 {
	b := r.Take(4)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}

// Byte takes one byte.
func (r *Reader) Byte() byte {
	if len(r.B) == 0 {
		r.Bad = true
		return 0
	}
	c := r.B[0]
	r.B = r.B[1:]
	return c
}
