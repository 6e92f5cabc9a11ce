package transport

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Raw is a message of bytes. No code may write to the bytes of a sent message; the bytes of a
// received message belong to the receiver.
type Raw struct {
	Parts [][]byte // concatenated when sent
	Bytes []byte   // received
}

// codec is a gRPC codec for Raw and for protobuf messages.
type codec struct{}

func (codec) Name() string { return "tailrace" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *Raw:
		bufs := make(mem.BufferSlice, 0, len(m.Parts))
		for _, p := range m.Parts {
			if len(p) > 0 {
				bufs = append(bufs, mem.SliceBuffer(p))
			}
		}
		return bufs, nil
	case proto.Message:
		b, err := proto.Marshal(m)
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	return nil, fmt.Errorf("transport: a message of type %T", v) // a bug
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *Raw:
		m.Bytes = data.Materialize()
		return nil
	case proto.Message:
		return proto.Unmarshal(data.Materialize(), m)
	}
	return fmt.Errorf("transport: a message of type %T", v) // a bug
}
