package wire

import (
	"encoding/binary"
	"errors"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/sharedlog"
)

// MessageBytes is the approximate size of a message with groups or records.
const MessageBytes = 1 << 20

// SubmissionHead is the length of what AppendSubmission appends.
const SubmissionHead = 8 + PrefixSize

// AppendSubmission appends the beginning of a submission: a group that a client sends to the
// primary of a shard (storage/append). The head and the data of its body follow. A message is a
// sequence of submissions:
//
//	 0          8        24
//	+----------+--------+------+
//	| sequence | prefix | body |
//	| u64 LE   |        |      |
//	+----------+--------+------+
//
// sequence is the client's number for the group on this shard. The Answer refers to it.
func AppendSubmission(dst []byte, sequence uint64, crc uint32, head, data, records int) []byte {
	return AppendPrefix(binary.LittleEndian.AppendUint64(dst, sequence), crc, head, data, records)
}

// Submission is a decoded submission. Body and Decoded alias the message.
type Submission struct {
	Sequence uint64
	Body     Body
	Decoded  *Decoded
}

// Take decodes the submission at the front of a message and returns the rest of the message.
func (s *Submission) Take(b []byte) (rest []byte, err error) {
	if len(b) < 8 {
		return nil, sharedlog.Errorf(sharedlog.KindCorrupt, "a message of groups is truncated")
	}
	*s = Submission{Sequence: binary.LittleEndian.Uint64(b), Decoded: new(Decoded)}
	if rest, err = s.Body.Take(b[8:]); err == nil {
		err = s.Body.Decode(s.Decoded)
	}
	if err != nil {
		return nil, sharedlog.Errorf(sharedlog.KindInvalid, "a group: %v", err)
	}
	return rest, nil
}

// Answer is the primary's answer to a submission. A message is a sequence of answers:
//
//	sequence first            with effect; first is the LSN of the first record, at least 1
//	sequence 0 kind n{text}   an error
//
// Numbers are uvarints; kind is a byte (sharedlog.Kind).
type Answer struct {
	Sequence uint64
	First    sharedlog.LSN // if Err is nil
	Err      error
}

// Append appends the answer to a message.
func (a *Answer) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, a.Sequence)
	if a.Err != nil {
		return appendError(append(b, 0), a.Err)
	}
	return binary.AppendUvarint(b, uint64(a.First))
}

// Take decodes the answer at the front of a message and returns the rest of the message.
func (a *Answer) Take(b []byte) (rest []byte, err error) {
	p := codec.Reader{B: b}
	*a = Answer{Sequence: p.Uvarint(), First: sharedlog.LSN(p.Uvarint())}
	if a.First == 0 {
		a.Err = takeError(&p)
	}
	if p.Bad {
		return nil, errMalformed
	}
	return p.B, nil
}

var errMalformed = errors.New("malformed message")

// appendError appends an error's kind and text:
//
//	kind(1) n{text}
func appendError(b []byte, err error) []byte {
	return codec.AppendString(append(b, byte(sharedlog.KindOf(err))), err.Error())
}

// takeError takes an error. It has the sender's kind and text.
func takeError(p *codec.Reader) error {
	kind, text := sharedlog.Kind(p.Byte()), string(p.Bytes())
	prefix := kind.String() + ": "
	if len(text) > len(prefix) && text[:len(prefix)] == prefix {
		text = text[len(prefix):]
	}
	return sharedlog.Errorf(kind, "%s", text)
}
