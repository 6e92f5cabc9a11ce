package copies

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"

	"tailrace.dev/tailrace/sharedlog"
)

// Request asks for the state of one key group as of a release.
type Request struct {
	// Stage and Task released the group, by a commit of the instance with this nonce.
	Stage  int    `json:"stage"`
	Task   int    `json:"task"`
	Nonce  uint64 `json:"nonce"`
	Commit uint64 `json:"commit"`
	Group  int    `json:"group"`
}

// Bytes returns the request as a message.
func (r *Request) Bytes() ([]byte, error) { return json.Marshal(r) }

// ParseRequest is the inverse of Request.Bytes.
func ParseRequest(b []byte) (r Request, err error) {
	if err := json.Unmarshal(b, &r); err != nil {
		return r, sharedlog.Errorf(sharedlog.KindInvalid, "a request for a key group: %v", err)
	}
	return r, nil
}

// Kind is what a frame is.
type Kind byte

// The kinds of frames.
const (
	Some  Kind = 1
	Whole Kind = 2
	None  Kind = 3
)

const (
	version = 1
	header  = 6
)

// Frame is a part of the answer to a request.
type Frame struct {
	Kind Kind
	// Items are those of a frame of kind Some.
	Items []byte
	// Total is how many items the group has (kind Whole).
	Total uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:2], castagnoli), castagnoli, b[header:])
}

// Begin returns a frame of kind Some without items, with room for some bytes of them: append the items,
// then call Seal.
func Begin(size int) []byte {
	return append(make([]byte, 0, header+size), version, byte(Some), 0, 0, 0, 0)
}

// Size returns the length of the items in a frame that Begin has returned.
func Size(b []byte) int { return len(b) - header }

// Seal sets the checksum of a frame that Begin has returned.
func Seal(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[2:], checksum(b))
	return b
}

// End returns the frame that ends the answer: the group had this number of items.
func End(total uint64) []byte {
	return Seal(binary.AppendUvarint([]byte{version, byte(Whole), 0, 0, 0, 0}, total))
}

// Refusal returns the frame that is the answer of a process that does not have the group.
func Refusal() []byte { return Seal([]byte{version, byte(None), 0, 0, 0, 0}) }

// Parse reads a frame. Items alias it. An error has kind sharedlog.KindVersion if another build has
// written it, else sharedlog.KindCorrupt.
func Parse(b []byte) (f Frame, err error) {
	switch {
	case len(b) < header:
		return f, sharedlog.Errorf(sharedlog.KindCorrupt, "a frame of a key group's state has %d bytes", len(b))
	case b[0] != version:
		return f, sharedlog.Errorf(sharedlog.KindVersion, "a frame of a key group's state has version %d; this build reads %d", b[0], version)
	case binary.LittleEndian.Uint32(b[2:]) != checksum(b):
		return f, sharedlog.Errorf(sharedlog.KindCorrupt, "a frame of a key group's state has another checksum than its bytes")
	}
	f.Kind = Kind(b[1])
	body := b[header:]
	ok := true
	switch f.Kind {
	case Some:
		f.Items = body
	case Whole:
		var n int
		f.Total, n = binary.Uvarint(body)
		ok = n > 0 && n == len(body)
	case None:
		ok = len(body) == 0
	default:
		return f, sharedlog.Errorf(sharedlog.KindVersion, "a frame of a key group's state has kind %d", f.Kind)
	}
	if !ok {
		return f, sharedlog.Errorf(sharedlog.KindCorrupt, "a frame of a key group's state has %d bytes behind its header", len(body))
	}
	return f, nil
}
