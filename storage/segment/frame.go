package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/wire"
)

// FixedSize is the length in bytes of a frame's fixed header.
const FixedSize = 28

// MaxFrameSize is the maximum size of a frame of a valid group.
const MaxFrameSize = FixedSize + wire.MaxSize

// frameMagic follows the CRC in every frame. It is not zero, so zeros are never a valid frame.
const frameMagic uint32 = 0x31465254 // "TRF1"

// Frame is a group encoded for writing, except for its position. Encode does the work that grows
// with the group and may run on any goroutine; Appender.Append only computes a CRC over 24 bytes. A
// Frame can be reused after the append, and then reuses its memory.
type Frame struct {
	head    []byte   // fixed header (filled in by finish) and variable header
	bufs    [][]byte // head and the records' data, as for pwritev
	body    uint32   // CRC of the variable header and the data
	size    int
	records int
	scratch sealed
}

// Encode makes f the frame of g, which must be valid (Group.Validate). opens reports that g opens
// its writer's session. The frame has no checksums of single records; a group that comes from
// another process has them (Adopt). The record data is not copied: the caller must not change it
// until the frame has been appended.
func (f *Frame) Encode(g *sharedlog.Group, opens bool) { f.encode(g, opens, false) }

func (f *Frame) encode(g *sharedlog.Group, opens, sums bool) {
	h := slices.Grow(f.head[:0], FixedSize)[:FixedSize]
	h = wire.AppendHead(h, g, opens, sums)
	data := 0
	for i := range g.Records {
		data += len(g.Records[i].Data)
	}
	f.head = h
	f.records = len(g.Records)
	f.size = len(h) + data
	f.bufs = append(f.bufs[:0], h)
	f.body = crc32.Update(0, codec.Castagnoli, h[FixedSize:])
	for i := range g.Records {
		if d := g.Records[i].Data; len(d) > 0 {
			f.bufs = append(f.bufs, d)
			f.body = crc32.Update(f.body, codec.Castagnoli, d)
		}
	}
	f.fix(len(h)-FixedSize, data)
}

// Adopt makes f the frame of a group that is already encoded. The bytes are not copied: the caller
// must not change them until the frame has been appended.
func (f *Frame) Adopt(w *wire.Body) {
	f.head = slices.Grow(f.head[:0], FixedSize)[:FixedSize]
	f.records = w.Records
	f.size = FixedSize + len(w.Bytes)
	f.bufs = append(f.bufs[:0], f.head, w.Bytes)
	f.body = w.CRC
	f.fix(w.Head, len(w.Bytes)-w.Head)
}

// fix fills in the fixed header, except for position and checksum.
func (f *Frame) fix(head, data int) {
	le := binary.LittleEndian
	le.PutUint32(f.head[4:], frameMagic)
	le.PutUint32(f.head[8:], uint32(head))
	le.PutUint32(f.head[12:], uint32(data))
	le.PutUint32(f.head[16:], uint32(f.records))
}

// Size returns the frame's length in bytes on disk.
func (f *Frame) Size() int { return f.size }

// Records returns the number of records in the frame.
func (f *Frame) Records() int { return f.records }

// finish sets the position and the checksum.
func (f *Frame) finish(position, salt uint64) {
	binary.LittleEndian.PutUint64(f.head[20:], position)
	binary.LittleEndian.PutUint32(f.head, f.scratch.crc(f.body, f.head, salt))
}

// sealed is the last input of a frame's CRC. It is a field of Frame and Decoded, because the
// assembly of the CRC would make a local buffer escape to the heap.
type sealed [FixedSize - 4 + 8]byte

// crc extends a body's CRC over the fixed header and the segment's salt, which binds the frame to
// the file that it is written to.
func (b *sealed) crc(body uint32, fixed []byte, salt uint64) uint32 {
	copy(b[:], fixed[4:FixedSize])
	binary.LittleEndian.PutUint64(b[FixedSize-4:], salt)
	return crc32.Update(body, codec.Castagnoli, b[:])
}

// Decoded is a decoded frame. Strings and byte slices alias the decoded buffer; the slices of
// records and tags belong to the Decoded and are reused by the next Decode.
type Decoded struct {
	// Position is the position of the first record in the shard's sublog.
	Position uint64
	// Size is the frame's length in bytes.
	Size int
	wire.Decoded

	scratch sealed
}

// End returns the sublog position after the group.
func (d *Decoded) End() uint64 { return d.Position + uint64(len(d.Group.Records)) }

// frameSize returns the frame's length according to its header; b holds at least FixedSize bytes.
// The length is bounded but not verified.
func frameSize(b []byte) (int, error) {
	le := binary.LittleEndian
	if m := le.Uint32(b[4:]); m != frameMagic {
		if m == 0 {
			return 0, errBlank
		}
		return 0, fmt.Errorf("no frame starts here (%#08x)", m)
	}
	size := uint64(FixedSize) + uint64(le.Uint32(b[8:])) + uint64(le.Uint32(b[12:]))
	if size > MaxFrameSize {
		return 0, fmt.Errorf("a frame of %d bytes is longer than the maximum", size)
	}
	return int(size), nil
}

// Decode decodes the frame at the start of b, written under salt, into d. b may continue after the
// frame. The error describes the damage; d must not be used then.
func (d *Decoded) Decode(b []byte, salt uint64) error {
	if len(b) < FixedSize {
		return fmt.Errorf("%d bytes are too short for a frame", len(b))
	}
	size, err := frameSize(b)
	if err != nil {
		return err
	}
	if size > len(b) {
		return fmt.Errorf("a frame of %d bytes has only %d", size, len(b))
	}
	b = b[:size]
	le := binary.LittleEndian
	if got, want := d.scratch.crc(crc32.Checksum(b[FixedSize:], codec.Castagnoli), b, salt), le.Uint32(b); got != want {
		return fmt.Errorf("checksum is %08x, not %08x", got, want)
	}
	d.Position, d.Size = le.Uint64(b[20:]), size
	return d.Decoded.Decode(b[FixedSize:], int(le.Uint32(b[8:])), int(le.Uint32(b[16:])))
}
