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
	// Of is the number of sub-groups into which the group is divided; 0: it is asked for as a whole. Parts are
	// the sub-groups that are asked for, by number; the number Of is that of the head.
	Of    int   `json:"of,omitempty"`
	Parts []int `json:"parts,omitempty"`
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
	Parts Kind = 4
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
	// Parts are those of a frame of kind Parts.
	Parts []Part
}

// Part is a sub-group, which is complete with these items, or the head.
type Part struct {
	Number int
	// Total is how many items it has. Those of frames of kind Some that came before are the first ones of the
	// first part in a frame.
	Total int
	Items []byte
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

// BeginParts returns a frame of kind Parts without any: call AppendPart, then Seal.
func BeginParts(size int) []byte {
	b := Begin(size)
	b[1] = byte(Parts)
	return b
}

// AppendPart adds a part to a frame that BeginParts has returned.
func AppendPart(b []byte, p *Part) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(p.Number)), uint64(p.Total))
	return append(binary.AppendUvarint(b, uint64(len(p.Items))), p.Items...)
}

// parseParts reads the body of a frame of kind Parts.
func parseParts(b []byte) (parts []Part, ok bool) {
	for len(b) > 0 {
		var head [3]uint64 // number, total, length of the items
		for i := range head {
			v, n := binary.Uvarint(b)
			if n <= 0 || v > 1<<31 {
				return nil, false
			}
			head[i], b = v, b[n:]
		}
		if uint64(len(b)) < head[2] {
			return nil, false
		}
		parts = append(parts, Part{int(head[0]), int(head[1]), b[:head[2]]})
		b = b[head[2]:]
	}
	return parts, len(parts) > 0
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
	case Parts:
		f.Parts, ok = parseParts(body)
	default:
		return f, sharedlog.Errorf(sharedlog.KindVersion, "a frame of a key group's state has kind %d", f.Kind)
	}
	if !ok {
		return f, sharedlog.Errorf(sharedlog.KindCorrupt, "a frame of a key group's state has %d bytes behind its header", len(body))
	}
	return f, nil
}
