package wire

import (
	"encoding/binary"

	"tailrace.dev/tailrace/sharedlog"
)

// Placed is a group at a position of its shard.
type Placed struct {
	Position uint64 // of its first record
	Body     Body
}

// ReplicateParts returns the parts of a message from a shard's primary to a backup
// (storage/replicate). The groups are consecutive; the message has the position of the first:
//
//	 0          8
//	+----------+-----------------+
//	| position | { prefix body } |
//	| u64 LE   |                 |
//	+----------+-----------------+
func ReplicateParts(groups []Placed) [][]byte {
	head := make([]byte, 0, 8+len(groups)*PrefixSize)
	head = binary.LittleEndian.AppendUint64(head, groups[0].Position)
	parts := make([][]byte, 0, 2*len(groups))
	from := 0
	for i := range groups {
		head = groups[i].Body.AppendPrefix(head)
		parts = append(parts, head[from:], groups[i].Body.Bytes)
		from = len(head)
	}
	return parts
}

// DecodeReplicate decodes a message of ReplicateParts and calls f for each group. Bodies alias the
// message. After an error f may have been called for the groups before it.
func DecodeReplicate(b []byte, f func(p Placed, d *Decoded)) error {
	if len(b) < 8 {
		return sharedlog.Errorf(sharedlog.KindCorrupt, "a message of %d bytes", len(b))
	}
	p := Placed{Position: binary.LittleEndian.Uint64(b)}
	b = b[8:]
	for len(b) > 0 {
		d := new(Decoded)
		var err error
		if b, err = p.Body.Take(b); err == nil {
			err = p.Body.Decode(d)
		}
		if err != nil {
			return sharedlog.Errorf(sharedlog.KindCorrupt, "a group at position %d: %v", p.Position, err)
		}
		f(p, d)
		p.Position += uint64(p.Body.Records)
	}
	return nil
}

// EncodeLength returns a backup's message to its primary: the number of records that it holds, as
// u64 LE.
func EncodeLength(length uint64) []byte { return binary.LittleEndian.AppendUint64(nil, length) }

// DecodeLength decodes a message of EncodeLength.
func DecodeLength(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, sharedlog.Errorf(sharedlog.KindCorrupt, "a length of %d bytes", len(b))
	}
	return binary.LittleEndian.Uint64(b), nil
}
