package wire

import (
	"encoding/binary"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
)

// FetchedKind is the kind of a Fetched.
type FetchedKind uint8

// The kinds. Their numbers are part of the wire format.
const (
	FetchedVoid    FetchedKind = 0 // an ordered group without effect
	FetchedGroup   FetchedKind = 1 // an ordered group with effect
	FetchedTrimmed FetchedKind = 2 // positions whose groups were trimmed and deleted
	FetchedWriters FetchedKind = 3 // a table of writers (storage.Writers.AppendTable)
)

// Fetched is one row of a message about the sublog of a shard. Rows come in the order of their
// positions (storage/fetch):
//
//	 0          8          16
//	+----------+----------+---+---------------+
//	| position | first    | k | prefix body   |   k = 0, 1: a group; first is its LSN
//	| from     | to       | 2 | index u64     |   trimmed: positions from … to-1
//	| length   | 0        | 3 | table         |   writers: length bytes
//	+----------+----------+---+---------------+
//
// All numbers are little-endian. index is an index of the metalog: the trim points up to there
// explain what is missing. Kinds 2 and 3 are sent only on request (marks). Groups and trimmed
// ranges then follow one another without a gap: a gap is damage.
type Fetched struct {
	Kind FetchedKind
	// From is the position of the first record (groups, trimmed); To is one past the last.
	From, To uint64
	First    sharedlog.LSN // for groups
	Index    uint64        // for trimmed
	Body     Body          // for groups; aliases the message
	Table    []byte        // for writers; aliases the message
}

const fetchedHead = 17

// AppendFetched appends a row.
func AppendFetched(b []byte, f *Fetched) []byte {
	first, second := f.From, f.To
	switch f.Kind {
	case FetchedVoid, FetchedGroup:
		second = uint64(f.First)
	case FetchedWriters:
		first, second = uint64(len(f.Table)), 0
	}
	b = binary.LittleEndian.AppendUint64(b, first)
	b = binary.LittleEndian.AppendUint64(b, second)
	b = append(b, byte(f.Kind))
	switch f.Kind {
	case FetchedVoid, FetchedGroup:
		b = append(f.Body.AppendPrefix(b), f.Body.Bytes...)
	case FetchedTrimmed:
		b = binary.LittleEndian.AppendUint64(b, f.Index)
	case FetchedWriters:
		b = append(b, f.Table...)
	}
	return b
}

// Take decodes the row at the front of a message and returns the rest of the message.
func (f *Fetched) Take(b []byte) (rest []byte, err error) {
	if len(b) < fetchedHead {
		return nil, fmt.Errorf("a message of fetched groups is truncated")
	}
	first, second := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	*f = Fetched{Kind: FetchedKind(b[16])}
	b = b[fetchedHead:]
	switch f.Kind {
	case FetchedVoid, FetchedGroup:
		f.From, f.First = first, sharedlog.LSN(second)
		if b, err = f.Body.Take(b); err != nil {
			return nil, fmt.Errorf("a fetched group at position %d: %w", f.From, err)
		}
		f.To = f.From + uint64(f.Body.Records)
	case FetchedTrimmed:
		if f.From, f.To = first, second; f.To <= f.From || len(b) < 8 {
			return nil, fmt.Errorf("invalid trimmed range from position %d to %d", f.From, f.To)
		}
		f.Index, b = binary.LittleEndian.Uint64(b), b[8:]
	case FetchedWriters:
		if first > uint64(len(b)) {
			return nil, fmt.Errorf("a table of writers of %d bytes in a message that has %d left", first, len(b))
		}
		f.Table, b = b[:first:first], b[first:]
	default:
		return nil, fmt.Errorf("a fetched row of kind %d", f.Kind)
	}
	return b, nil
}
