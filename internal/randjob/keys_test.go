//go:build !keytypes

package randjob

import (
	"tailrace.dev/tailrace/internal/randjob/model"
	"tailrace.dev/tailrace/operators/serde"
)

// kinds are the kinds of keys. All have one Go type and differ in how they are encoded: another type
// takes the compiler half a minute. With the tag keytypes, each kind has a type of its own.
var kinds = map[model.KeyKind]keyKind{
	model.KeyString:   texts(serde.String),
	model.KeyString16: texts(string16{}),
	model.KeyBytes4:   texts(bytes4{}),
	model.KeyUnit:     texts(nothing{}),
	model.KeyInt64:    numbers(serde.Int64),
	model.KeyInt64BE:  numbers(int64BE{}),
	model.KeyPair:     pairs(serde.Pair(serde.String, serde.Int64)),
	model.KeyJSON:     pairs(serde.JSON[pair]()),
}

// reference is the type of a key to which items refer: a text.
type reference = model.Key

func referenceTo(k model.Key) reference { return model.Key{S: k.S} }

func texts(sd serde.Serde[string]) keyKind  { return keysBy(sd, toString, fromString) }
func numbers(sd serde.Serde[int64]) keyKind { return keysBy(sd, toNumber, fromNumber) }
func pairs(sd serde.Serde[pair]) keyKind    { return keysBy(sd, toPair, fromPair) }

func keysBy[T any](sd serde.Serde[T], to func(k model.Key) T, back func(v *T) model.Key) keyKind {
	return &kind[model.Key]{keys[T]{sd, to, back}, func(k model.Key) model.Key { return k }, func(k *model.Key) model.Key { return *k }}
}

// keys encodes a key as another type's value.
type keys[T any] struct {
	sd   serde.Serde[T]
	to   func(k model.Key) T
	back func(v *T) model.Key
}

func (s keys[T]) Name() string { return serde.NameOf(s.sd) }

func (s keys[T]) Append(dst []byte, k *model.Key) []byte {
	v := s.to(*k)
	return s.sd.Append(dst, &v)
}

func (s keys[T]) Decode(src []byte, k *model.Key) (int, error) {
	var v T
	n, err := s.sd.Decode(src, &v)
	if err != nil {
		return 0, err
	}
	*k = s.back(&v)
	return n, nil
}
