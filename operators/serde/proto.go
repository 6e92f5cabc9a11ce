package serde

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

type protoSerde[M proto.Message] struct{ name string }

var deterministic = proto.MarshalOptions{Deterministic: true}

// Proto returns a serde of a protobuf message; M is the generated pointer type. Decode makes a new
// message each time: items are copied by assignment, so that a reused message would be shared by
// two of them. Append panics on a message that cannot be marshalled (invalid UTF-8 in a string),
// which is a bug of the program.
func Proto[M proto.Message]() Serde[M] {
	var m M
	return &protoSerde[M]{name: "proto(" + string(m.ProtoReflect().Descriptor().FullName()) + ")"}
}

func (s *protoSerde[M]) Name() string { return s.name }

func (s *protoSerde[M]) Append(dst []byte, v *M) []byte {
	b, err := deterministic.Marshal(*v)
	if err != nil {
		panic(fmt.Sprintf("serde: %s: %v", s.name, err))
	}
	return AppendBytes(dst, b)
}

func (s *protoSerde[M]) Decode(src []byte, v *M) (int, error) {
	r := Reader{src: src}
	b := r.Bytes()
	if r.err != nil {
		return 0, r.err
	}
	var none M
	m := none.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, m); err != nil {
		return 0, fmt.Errorf("%s: %w: %w", s.name, ErrMalformed, err)
	}
	*v = m.(M)
	return r.pos, nil
}

func (s *protoSerde[M]) Clone(v *M) M { return proto.Clone(*v).(M) }
