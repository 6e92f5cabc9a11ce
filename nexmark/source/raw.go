package source

import (
	"encoding/binary"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/operators/serde"
)

// Raw is the serde of events in their binary form: length (uvarint) and bytes. A decoded event
// aliases the bytes that it was decoded from.
var Raw serde.Serde[event.Raw] = rawSerde{}

type rawSerde struct{}

func (rawSerde) Name() string { return "nexmark event" }

func (rawSerde) Append(dst []byte, v *event.Raw) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(*v)))
	return append(dst, *v...)
}

func (rawSerde) Decode(src []byte, v *event.Raw) (int, error) {
	if len(src) > 0 && src[0] < 0x80 { // a bid, nearly always
		if n := int(src[0]) + 1; n <= len(src) {
			*v = src[1:n:n]
			return n, nil
		}
		return 0, serde.ErrShort
	}
	size, k := binary.Uvarint(src)
	if k <= 0 || size > uint64(len(src)-k) {
		return 0, serde.ErrShort
	}
	end := k + int(size)
	*v = src[k:end:end]
	return end, nil
}
