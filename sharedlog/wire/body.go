package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/sharedlog"
)

// MaxSize bounds the body of a valid group: its data, the tags, the names, the
// condition's value, and at most 16 bytes of lengths and checksums for each record or tag.
const MaxSize = sharedlog.MaxGroupBytes + sharedlog.MaxValueBytes +
	sharedlog.MaxGroupTags*(sharedlog.MaxTagBytes+16) + 4*sharedlog.MaxNameBytes

const (
	flagOpens = 1 // the group opens its writer's session
	flagSums  = 2 // the head holds checksums of the records
)

// AppendHead appends the head of g's body to h. opens says that g opens its writer's session on a
// shard. With sums the head holds a checksum of each record; programs of feature level 1 cannot
// read such a head.
func AppendHead(h []byte, g *sharedlog.Group, opens, sums bool) []byte {
	flags := byte(0)
	if opens {
		flags |= flagOpens
	}
	if sums {
		flags |= flagSums
	}
	h = slices.Grow(h, headRoom(g))
	h = append(h, flags)
	h = codec.AppendString(h, g.Writer)
	h = binary.AppendUvarint(h, g.Number)
	h = codec.AppendString(h, g.If.Key)
	h = codec.AppendString(h, g.If.Value)
	at := len(h)
	if sums {
		h = slices.Grow(h, sumSize*len(g.Records))[:at+sumSize*len(g.Records)] // filled in below
	}
	for i := range g.Records {
		r := &g.Records[i]
		row := len(h)
		h = binary.AppendUvarint(h, uint64(len(r.Tags)))
		for _, t := range r.Tags {
			h = codec.AppendString(h, t)
		}
		h = binary.AppendUvarint(h, uint64(len(r.Data)))
		if sums {
			sum := crc32.Update(crc32.Checksum(h[row:], codec.Castagnoli), codec.Castagnoli, r.Data)
			binary.LittleEndian.PutUint32(h[at+sumSize*i:], sum)
		}
	}
	return h
}

// headRoom bounds the length of the head of a valid group.
func headRoom(g *sharedlog.Group) int {
	n := 1 + 3*binary.MaxVarintLen32 + binary.MaxVarintLen64 + len(g.Writer) + len(g.If.Key) + len(g.If.Value)
	for i := range g.Records {
		n += sumSize + 2*4 // checksum, number of tags, length of the data
		for _, t := range g.Records[i].Tags {
			n += 2 + len(t)
		}
	}
	return n
}

// SetOpens sets or clears the opens flag of a head.
func SetOpens(head []byte, opens bool) {
	if head[0] &^= flagOpens; opens {
		head[0] |= flagOpens
	}
}

// CRC returns the checksum of a body.
func CRC(head []byte, data ...[]byte) uint32 {
	c := crc32.Checksum(head, codec.Castagnoli)
	for _, d := range data {
		c = crc32.Update(c, codec.Castagnoli, d)
	}
	return c
}

// Decoded is a decoded body. Its strings and byte slices alias the buffer that was decoded. The
// slices of records and tags belong to the Decoded, and the next call of Decode reuses them.
type Decoded struct {
	// Opens says that the group opens its writer's session.
	Opens bool
	Group sharedlog.Group
	// Sums holds the checksums of the records (SumOf); nil if the body has none.
	Sums []byte

	tags  []sharedlog.Tag
	bytes []byte
	head  int
}

// Decode decodes the body b, which has count records and a head of headLen bytes. The caller
// verifies the checksum; Decode returns an error, and does not panic, for a body that contradicts
// itself. After an error the content of d is undefined.
func (d *Decoded) Decode(b []byte, headLen, count int) error {
	if headLen < 0 || headLen > len(b) {
		return fmt.Errorf("a head of %d bytes in a body of %d", headLen, len(b))
	}
	if count <= 0 || count > sharedlog.MaxGroupTags {
		return fmt.Errorf("%d records in a frame", count)
	}
	head, data := codec.Reader{B: b[:headLen]}, b[headLen:]
	flags := head.Byte()
	d.Opens, d.bytes, d.head = flags&flagOpens != 0, b, headLen
	d.Group = sharedlog.Group{
		Writer:  alias(head.Bytes()),
		Number:  head.Uvarint(),
		If:      sharedlog.Condition{Key: alias(head.Bytes()), Value: head.Bytes()},
		Records: slices.Grow(d.Group.Records[:0], count)[:count],
	}
	d.Sums = nil
	if flags&flagSums != 0 {
		d.Sums = head.Take(sumSize * count)
	}
	d.tags = slices.Grow(d.tags[:0], count)
	for i := range d.Group.Records {
		n := head.Uvarint()
		if n == 0 || n > uint64(sharedlog.MaxGroupTags-len(d.tags)) {
			return fmt.Errorf("record %d has %d tags", i, n)
		}
		first := len(d.tags)
		for range n {
			d.tags = append(d.tags, sharedlog.Tag(alias(head.Bytes())))
		}
		size := head.Uvarint()
		if size > uint64(len(data)) {
			return fmt.Errorf("record %d has %d bytes of the %d that are left", i, size, len(data))
		}
		d.Group.Records[i] = sharedlog.Record{Tags: d.tags[first:len(d.tags):len(d.tags)], Data: data[:size:size]}
		data = data[size:]
	}
	if head.Bad || len(head.B) > 0 || len(data) > 0 || flags&^(flagOpens|flagSums) != 0 {
		return fmt.Errorf("frame header does not add up")
	}
	return nil
}

// Body returns the body that was decoded; it aliases the buffer.
func (d *Decoded) Body() Body {
	return Body{CRC: CRC(d.bytes), Head: d.head, Records: len(d.Group.Records), Bytes: d.bytes}
}
