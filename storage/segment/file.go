package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/internal/vfs"
)

// HeaderSize is the length in bytes of a segment file's header; the first frame follows it.
const HeaderSize = 40

const (
	version             = 1
	trailerSize         = 40
	headerMagic  uint64 = 0x31_47_45_53_4c_49_41_54 // "TAILSEG1"
	trailerMagic uint64 = 0x31_44_4e_45_4c_49_41_54 // "TAILEND1"
)

var errBlank = errors.New("blank")

// ID identifies a segment: the Number-th (from 1) of a shard.
type ID struct {
	Shard  uint32
	Number uint32
}

// String returns the name of the segment's file without extension.
func (id ID) String() string { return fmt.Sprintf("%08d-%08d", id.Shard, id.Number) }

func (id ID) fileName() string { return id.String() + ".seg" }

func parseName(name string) (id ID, ok bool) {
	_, err := fmt.Sscanf(name, "%08d-%08d.seg", &id.Shard, &id.Number)
	return id, err == nil && id.fileName() == name
}

// Compare orders IDs by shard, then by number.
func (id ID) Compare(o ID) int {
	a, b := id.key(), o.key()
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (id ID) key() uint64 { return uint64(id.Shard)<<32 | uint64(id.Number) }

// appendHeader appends a segment file's header.
func appendHeader(b []byte, id ID, salt uint64) []byte {
	le := binary.LittleEndian
	at := len(b)
	b = le.AppendUint64(b, headerMagic)
	b = le.AppendUint32(b, version)
	b = le.AppendUint32(b, id.Shard)
	b = le.AppendUint32(b, id.Number)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, salt)
	b = le.AppendUint32(b, 0)
	return le.AppendUint32(b, crc32.Checksum(b[at:], codec.Castagnoli))
}

var (
	errNoHeader = errors.New("no segment header")
	errVersion  = errors.New("segment of version")
)

// trailer is the last part of a closed segment's file.
type trailer struct {
	used      uint32 // end of the frames, start of the footer
	footerLen uint32
	footerCRC uint32
}

// size returns the length of the file.
func (t trailer) size() int64 { return int64(t.used) + int64(t.footerLen) + trailerSize }

func (t trailer) append(b []byte, salt uint64) []byte {
	le := binary.LittleEndian
	at := len(b)
	b = le.AppendUint64(b, trailerMagic)
	b = le.AppendUint64(b, salt)
	b = le.AppendUint32(b, t.used)
	b = le.AppendUint32(b, t.footerLen)
	b = le.AppendUint32(b, t.footerCRC)
	b = le.AppendUint64(b, 0)
	return le.AppendUint32(b, crc32.Checksum(b[at:], codec.Castagnoli))
}

// readTrailer reads a file's trailer; ok is false if the segment was not closed.
func readTrailer(f vfs.File, size int64, salt uint64) (t trailer, ok bool, err error) {
	if size < HeaderSize+trailerSize {
		return t, false, nil
	}
	var b [trailerSize]byte
	if _, err := f.ReadAt(b[:], size-trailerSize); err != nil && err != io.EOF {
		return t, false, err
	}
	le := binary.LittleEndian
	t = trailer{used: le.Uint32(b[16:]), footerLen: le.Uint32(b[20:]), footerCRC: le.Uint32(b[24:])}
	ok = le.Uint64(b[:]) == trailerMagic &&
		le.Uint64(b[8:]) == salt &&
		crc32.Checksum(b[:trailerSize-4], codec.Castagnoli) == le.Uint32(b[trailerSize-4:]) &&
		int64(t.used)+int64(t.footerLen)+trailerSize == size
	return t, ok, nil
}
