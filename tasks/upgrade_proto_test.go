package tasks_test

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// visitPB is the message "visit" of one version of a program, which knows the fields F: what
// a generated type is, of which two of one name cannot be in one program.
type visitPB[F visitFields] struct{ m protoreflect.Message }

type visitFields interface {
	message() protoreflect.MessageDescriptor
}

// A message of version 1 has a number, one of version 2 also a text.
type (
	visitFields1 struct{}
	visitFields2 struct{}
)

func (visitFields1) message() protoreflect.MessageDescriptor { return visitMessage1 }
func (visitFields2) message() protoreflect.MessageDescriptor { return visitMessage2 }

var visitMessage1, visitMessage2 = visitMessage(1), visitMessage(2)

func visitMessage(fields int) protoreflect.MessageDescriptor {
	field := func(name string, number int32, typ descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &typ, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	}
	all := []*descriptorpb.FieldDescriptorProto{
		field("n", 1, descriptorpb.FieldDescriptorProto_TYPE_INT64),
		field("since", 2, descriptorpb.FieldDescriptorProto_TYPE_STRING),
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("visit.proto"), Package: proto.String("test"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Visit"), Field: all[:fields]}},
	}, nil)
	if err != nil {
		panic(err)
	}
	return file.Messages().Get(0)
}

// ProtoReflect implements proto.Message; a nil message is an empty one.
func (v *visitPB[F]) ProtoReflect() protoreflect.Message {
	var fields F
	if v == nil {
		return visitReflect[F]{dynamicpb.NewMessage(fields.message())}
	}
	if v.m == nil {
		v.m = dynamicpb.NewMessage(fields.message())
	}
	return visitReflect[F]{v.m}
}

type visitReflect[F visitFields] struct{ protoreflect.Message }

func (r visitReflect[F]) New() protoreflect.Message            { return new(visitPB[F]).ProtoReflect() }
func (r visitReflect[F]) Interface() protoreflect.ProtoMessage { return &visitPB[F]{r.Message} }
func (r visitReflect[F]) field(number protoreflect.FieldNumber) protoreflect.FieldDescriptor {
	return r.Descriptor().Fields().ByNumber(number)
}

// countVisitPB adds one to the message's number and sets all other fields.
func countVisitPB[F visitFields](v **visitPB[F]) int64 {
	if *v == nil {
		*v = new(visitPB[F])
	}
	r := (*v).ProtoReflect().(visitReflect[F])
	n := r.Get(r.field(1)).Int() + 1
	r.Set(r.field(1), protoreflect.ValueOfInt64(n))
	if since := r.field(2); since != nil {
		r.Set(since, protoreflect.ValueOfString("v2"))
	}
	return n
}
