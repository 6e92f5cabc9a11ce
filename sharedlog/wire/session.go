package wire

import (
	"encoding/binary"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/sharedlog"
)

// PartKind is the kind of a part of a session's message.
type PartKind uint8

// The kinds. Their numbers are part of the wire format.
const (
	PartHeartbeat PartKind = 0
	PartBatch     PartKind = 1
	PartFrontier  PartKind = 2
	PartError     PartKind = 3
	PartSummed    PartKind = 4 // a batch with checksums
)

// smallData is the size up to which a record's data is copied into a message.
const smallData = 1 << 10

// SessionMessage is a message under construction, from a storage node to a client with cursors on
// the node's shards (storage/session). It is a sequence of parts:
//
//	heartbeat = 0
//	batch     = 1 cursor frontier opened n { lsn n{ n{tag} } n{data} }
//	frontier  = 2 shard frontier opened upto n { cursor }
//	error     = 3 cursor kind(1) n{text}
//	summed    = 4 cursor frontier opened n { lsn n{ n{tag} } n{data} sum(4) }
//
// The first byte of a part is its kind. Numbers are uvarints; tags, data and text are encoded as
// their length and bytes. A batch ends at the end of a group. A summed part is a batch of records
// that were appended with checksums, for a client that asks for them; sum is Sum.At, little-endian.
// A heartbeat only shows that the node is alive. A frontier holds for all cursors on the shard up
// to the number upto, except those listed (the node may not know a cursor that the client has just
// opened). It follows the batches below it, and takes no credit. opened is the number of shards
// that were ever opened below the frontier.
type SessionMessage struct {
	head  []byte // the end of the message
	parts [][]byte
	bytes int // of parts
}

// Empty reports whether nothing has been added to the message.
func (m *SessionMessage) Empty() bool { return m.bytes == 0 && len(m.head) == 0 }

// Full reports whether no more batches should be added.
func (m *SessionMessage) Full() bool { return m.bytes >= MessageBytes }

// Heartbeat adds a heartbeat.
func (m *SessionMessage) Heartbeat() { m.head = append(m.head, byte(PartHeartbeat)) }

// Batch adds a batch of records, with checksums if sums is not nil: all of them are known then. It
// returns the number of bytes of the records' data, which the message may alias.
func (m *SessionMessage) Batch(cursor uint64, frontier sharedlog.LSN, opened uint64, entries []sharedlog.Entry, sums []Sum) (data int64) {
	kind := PartBatch
	if sums != nil {
		kind = PartSummed
	}
	m.head = append(m.head, byte(kind))
	m.numbers(cursor, uint64(frontier), opened, uint64(len(entries)))
	for i := range entries {
		e := &entries[i]
		m.head = binary.AppendUvarint(m.head, uint64(e.LSN))
		m.head = binary.AppendUvarint(m.head, uint64(len(e.Tags)))
		for _, t := range e.Tags {
			m.head = codec.AppendString(m.head, t)
		}
		m.head = binary.AppendUvarint(m.head, uint64(len(e.Data)))
		if len(e.Data) <= smallData {
			m.head = append(m.head, e.Data...)
		} else {
			m.cut()
			m.parts = append(m.parts, e.Data)
			m.bytes += len(e.Data)
		}
		if sums != nil {
			m.head = binary.LittleEndian.AppendUint32(m.head, sums[i].At(e.LSN))
		}
		data += int64(len(e.Data))
	}
	return data
}

// Frontier adds a frontier of a shard.
func (m *SessionMessage) Frontier(shard uint32, frontier sharedlog.LSN, opened, upto uint64, except []uint64) {
	m.head = append(m.head, byte(PartFrontier))
	m.numbers(uint64(shard), uint64(frontier), opened, upto, uint64(len(except)))
	m.numbers(except...)
}

// Error adds the error that ended a cursor.
func (m *SessionMessage) Error(cursor uint64, err error) {
	m.head = append(m.head, byte(PartError))
	m.numbers(cursor)
	m.head = appendError(m.head, err)
}

func (m *SessionMessage) numbers(numbers ...uint64) {
	for _, v := range numbers {
		m.head = binary.AppendUvarint(m.head, v)
	}
}

// cut ends the part under construction.
func (m *SessionMessage) cut() {
	if len(m.head) > 0 {
		m.parts = append(m.parts, m.head)
		m.bytes += len(m.head)
		m.head = nil
	}
}

// Take returns the message and empties m.
func (m *SessionMessage) Take() [][]byte {
	m.cut()
	parts := m.parts
	m.parts, m.bytes = nil, 0
	return parts
}

// SessionPart is a decoded part of a session's message.
type SessionPart struct {
	Kind     PartKind
	Cursor   uint64        // of batches and errors
	Shard    uint32        // of frontiers
	Frontier sharedlog.LSN // of batches and frontiers
	Opened   uint64        // of batches and frontiers
	// Entries are the records of a batch. Their tags and data alias the message; the slices belong
	// to the caller.
	Entries []sharedlog.Entry
	// Upto is the highest cursor for which a frontier holds, and Except are the cursors below it
	// for which it does not hold. The next Take reuses Except.
	Upto   uint64
	Except []uint64
	Err    error // of errors
	// Damaged is the LSN, at least 1, of a record that does not match its checksum. Take has failed
	// then: what follows cannot be decoded, because lengths may be wrong, too.
	Damaged sharedlog.LSN
}

// Take decodes the part at the front of a message and returns the rest of the message.
func (s *SessionPart) Take(b []byte) (rest []byte, err error) {
	p := codec.Reader{B: b}
	*s = SessionPart{Kind: PartKind(p.Byte()), Except: s.Except[:0]}
	switch s.Kind {
	case PartHeartbeat:
	case PartBatch, PartSummed:
		s.Cursor, s.Frontier, s.Opened = p.Uvarint(), sharedlog.LSN(p.Uvarint()), p.Uvarint()
		s.Entries, s.Damaged = takeEntries(&p, s.Kind == PartSummed)
	case PartFrontier:
		s.Shard, s.Frontier, s.Opened, s.Upto = uint32(p.Uvarint()), sharedlog.LSN(p.Uvarint()), p.Uvarint(), p.Uvarint()
		for n := p.Uvarint(); n > 0 && !p.Bad; n-- {
			s.Except = append(s.Except, p.Uvarint())
		}
	case PartError:
		s.Cursor, s.Err = p.Uvarint(), takeError(&p)
	default:
		p.Bad = true
	}
	if p.Bad || s.Damaged > 0 {
		return nil, errMalformed
	}
	return p.B, nil
}

// takeEntries takes the records of a batch; if summed, each has its checksum. damaged is the LSN of
// the first record that does not match its checksum, or 0.
func takeEntries(p *codec.Reader, summed bool) (_ []sharedlog.Entry, damaged sharedlog.LSN) {
	n := p.Count(3) // LSN, number of tags, length of the data
	if p.Bad {
		return nil, 0
	}
	entries := make([]sharedlog.Entry, 0, n)
	var tags []sharedlog.Tag
	for ; n > 0 && !p.Bad; n-- {
		e := sharedlog.Entry{LSN: sharedlog.LSN(p.Uvarint())}
		first, row := len(tags), p.B
		for t := p.Uvarint(); t > 0 && !p.Bad; t-- {
			tags = append(tags, sharedlog.Tag(alias(p.Bytes())))
		}
		e.Tags = tags[first:len(tags):len(tags)]
		e.Data = p.Bytes()
		if summed && !p.Bad {
			sum := Row(row[:len(row)-len(p.B)]).Sum()
			if p.Uint32() != sum.At(e.LSN) && !p.Bad {
				return nil, max(e.LSN, 1)
			}
		}
		entries = append(entries, e)
	}
	return entries, 0
}
