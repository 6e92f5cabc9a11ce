package body

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// MaxSize bounds the body of a valid group: its data, the tags, the names, the
// condition's value, and at most 16 bytes of lengths for each record or tag.
const MaxSize = sharedlog.MaxGroupBytes + sharedlog.MaxValueBytes +
	sharedlog.MaxGroupTags*(sharedlog.MaxTagBytes+16) + 4*sharedlog.MaxNameBytes

const flagOpens = 1 // the group opens its writer's session

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendHead appends the head of g's body; opens is the bit that says that g opens
// its writer's session on a shard.
func AppendHead(h []byte, g *sharedlog.Group, opens bool) []byte {
	flags := byte(0)
	if opens {
		flags |= flagOpens
	}
	h = append(h, flags)
	h = appendString(h, g.Writer)
	h = binary.AppendUvarint(h, g.Number)
	h = appendString(h, g.If.Key)
	h = appendString(h, g.If.Value)
	for i := range g.Records {
		r := &g.Records[i]
		h = binary.AppendUvarint(h, uint64(len(r.Tags)))
		for _, t := range r.Tags {
			h = appendString(h, t)
		}
		h = binary.AppendUvarint(h, uint64(len(r.Data)))
	}
	return h
}

// SetOpens changes the flag in a head.
func SetOpens(head []byte, opens bool) {
	if head[0] &^= flagOpens; opens {
		head[0] |= flagOpens
	}
}

// CRC returns the checksum of a body.
func CRC(head []byte, data ...[]byte) uint32 {
	c := crc32.Checksum(head, castagnoli)
	for _, d := range data {
		c = crc32.Update(c, castagnoli, d)
	}
	return c
}

// Decoded is a body as read. Strings and byte slices alias the buffer that was
// decoded; the slices of records and tags belong to the Decoded and are used
// again by the next decoding into it.
type Decoded struct {
	// Opens says that the group opens its writer's session.
	Opens bool
	Group sharedlog.Group

	tags []sharedlog.Tag
}

// Decode decodes the body b, whose head has the given length, and which has count
// records. The checksum is the caller's business; below one that holds a
// contradiction is a bug or an attack, and no panic. d is of no use after an error.
func (d *Decoded) Decode(b []byte, headLen, count int) error {
	if headLen < 0 || headLen > len(b) {
		return fmt.Errorf("a head of %d bytes in a body of %d", headLen, len(b))
	}
	if count <= 0 || count > sharedlog.MaxGroupTags {
		return fmt.Errorf("%d records in a frame", count)
	}
	head, data := Parser{B: b[:headLen]}, b[headLen:]
	flags := head.Byte()
	d.Opens = flags&flagOpens != 0
	d.Group = sharedlog.Group{
		Writer:  Alias(head.Bytes()),
		Number:  head.Uvarint(),
		If:      sharedlog.Condition{Key: Alias(head.Bytes()), Value: head.Bytes()},
		Records: slices.Grow(d.Group.Records[:0], count)[:count],
	}
	d.tags = slices.Grow(d.tags[:0], count)
	for i := range d.Group.Records {
		n := head.Uvarint()
		if n == 0 || n > uint64(sharedlog.MaxGroupTags-len(d.tags)) {
			return fmt.Errorf("record %d has %d tags", i, n)
		}
		first := len(d.tags)
		for range n {
			d.tags = append(d.tags, sharedlog.Tag(Alias(head.Bytes())))
		}
		size := head.Uvarint()
		if size > uint64(len(data)) {
			return fmt.Errorf("record %d has %d bytes of the %d that are left", i, size, len(data))
		}
		d.Group.Records[i] = sharedlog.Record{Tags: d.tags[first:len(d.tags):len(d.tags)], Data: data[:size:size]}
		data = data[size:]
	}
	if head.Bad || len(head.B) > 0 || len(data) > 0 || flags&^flagOpens != 0 {
		return fmt.Errorf("frame header does not add up")
	}
	return nil
}

func appendString[S ~string | ~[]byte](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
