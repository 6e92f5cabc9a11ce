package serde

import (
	"bytes"
	"fmt"
	"reflect"
	"sync"
)

// Serde encodes and decodes values of one type. The package comment has the rules for
// implementations.
type Serde[T any] interface {
	// Append appends the encoding of *v to dst and returns the longer slice.
	Append(dst []byte, v *T) []byte
	// Decode sets *v from the front of src and returns the number of bytes read. An error names
	// what is wrong and is never retried.
	Decode(src []byte, v *T) (n int, err error)
}

// Cloner is implemented by serdes that know a cheaper deep copy than encoding
// and decoding.
type Cloner[T any] interface {
	// Clone returns a copy of *v that shares no memory with it.
	Clone(v *T) T
}

// plain is implemented by serdes that know whether their type has no pointers: a
// copy is then a clone.
type plain interface{ plain() bool }

// Plain reports whether values of sd hold no pointers, so that assigning one is
// a deep copy.
func Plain[T any](sd Serde[T]) bool {
	p, ok := any(sd).(plain)
	return ok && p.plain()
}

// Clone returns a copy of *v that shares no memory with it: by the serde's own
// Clone if it has one, else by encoding *v into fresh bytes and decoding those.
// It fails only if sd cannot decode what it has encoded.
func Clone[T any](sd Serde[T], v *T) (T, error) {
	if Plain(sd) {
		return *v, nil
	}
	if s, ok := any(sd).(Cloner[T]); ok {
		return s.Clone(v), nil
	}
	var c T // escapes: an allocation that the other cases avoid
	err := CloneInto(sd, &c, v)
	return c, err
}

var scratches = sync.Pool{New: func() any { return new([]byte) }}

// CloneInto is Clone into an existing value: at most one allocation.
func CloneInto[T any](sd Serde[T], dst, v *T) error {
	if Plain(sd) {
		*dst = *v
		return nil
	}
	if s, ok := any(sd).(Cloner[T]); ok {
		*dst = s.Clone(v)
		return nil
	}
	// Encode into reused memory first, so that the copy has the exact length.
	scratch := scratches.Get().(*[]byte)
	*scratch = sd.Append((*scratch)[:0], v)
	own := bytes.Clone(*scratch)
	scratches.Put(scratch)
	if _, err := sd.Decode(own, dst); err != nil {
		return fmt.Errorf("clone %s: %w", NameOf(sd), err)
	}
	return nil
}

// Namer is implemented by serdes that have a name; New's have.
type Namer interface{ Name() string }

// NameOf returns the name of sd and, unless the name contains it, of the Go type it encodes:
// "int64", "json(main.Event)". It is part of a stream's type, by which a restarted job is compared
// with the previous one.
func NameOf[T any](sd Serde[T]) string {
	if n, ok := any(sd).(Namer); ok {
		return n.Name()
	}
	var v *T
	return fmt.Sprintf("%T(%s)", sd, fmt.Sprintf("%T", v)[1:])
}

type funcSerde[T any] struct {
	name   string
	flat   bool
	append func(dst []byte, v *T) []byte
	decode func(r *Reader, v *T)
}

// New returns a serde made of two functions: the way to encode a struct by hand. decode sets every
// field of *v from r and need not check errors: r keeps the first one.
func New[T any](name string, append func(dst []byte, v *T) []byte, decode func(r *Reader, v *T)) Serde[T] {
	return &funcSerde[T]{name: name, flat: flat(reflect.TypeFor[T]()), append: append, decode: decode}
}

// flat reports whether values of a type hold no pointers.
func flat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return flat(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if !flat(f.Type) {
				return false
			}
		}
		return true
	}
	return t.Kind() <= reflect.Complex128
}

func (s *funcSerde[T]) plain() bool { return s.flat }

func (s *funcSerde[T]) Name() string                   { return s.name }
func (s *funcSerde[T]) Append(dst []byte, v *T) []byte { return s.append(dst, v) }
func (s *funcSerde[T]) Decode(src []byte, v *T) (int, error) {
	// The reader escapes into decode; the pool keeps that from being an
	// allocation per item.
	r := readers.Get().(*Reader)
	n, err := s.decodeWith(r, src, v)
	*r = Reader{}
	readers.Put(r)
	return n, err
}

// Decoder implements decoder.
func (s *funcSerde[T]) Decoder() DecodeFunc[T] { return s.decodeWith }

func (s *funcSerde[T]) decodeWith(r *Reader, src []byte, v *T) (int, error) {
	*r = Reader{src: src}
	s.decode(r, v)
	if r.err != nil {
		return 0, fmt.Errorf("%s: %w", s.name, r.err)
	}
	return r.pos, nil
}

// DecodeFunc is Serde.Decode with a Reader that it may use, whatever is in it. The Reader holds
// src until it is used again.
type DecodeFunc[T any] func(r *Reader, src []byte, v *T) (n int, err error)

// decoder is implemented by serdes whose Decode needs a Reader that is not on the stack.
type decoder[T any] interface{ Decoder() DecodeFunc[T] }

// DecoderOf returns Decode of sd for a caller that decodes many values and has a Reader for
// them: no value takes one from a pool.
func DecoderOf[T any](sd Serde[T]) DecodeFunc[T] {
	if s, ok := any(sd).(decoder[T]); ok {
		return s.Decoder()
	}
	return func(_ *Reader, src []byte, v *T) (int, error) { return sd.Decode(src, v) }
}

// Default returns the serde of a predeclared type (bool, the 32- and 64-bit
// integers, int, float64, string, []byte), and false for any other.
func Default[T any]() (Serde[T], bool) {
	var v *T
	var sd any
	switch any(v).(type) {
	case *bool:
		sd = Bool
	case *int:
		sd = Int
	case *int64:
		sd = Int64
	case *int32:
		sd = Int32
	case *uint64:
		sd = Uint64
	case *uint32:
		sd = Uint32
	case *float64:
		sd = Float64
	case *string:
		sd = String
	case *[]byte:
		sd = Bytes
	default:
		return nil, false
	}
	return sd.(Serde[T]), true
}
