package item

import (
	"fmt"

	"tailrace.dev/tailrace/operators/serde"
)

// KV is an item of a keyed stream.
type KV[K, V any] struct {
	Key   K
	Value V
}

// KVSerde returns the serde of a keyed item: its key, then its value.
func KVSerde[K, V any](keys serde.Serde[K], vals serde.Serde[V]) serde.Serde[KV[K, V]] {
	return kvSerde[K, V]{keys, vals}
}

type kvSerde[K, V any] struct {
	keys serde.Serde[K]
	vals serde.Serde[V]
}

func (s kvSerde[K, V]) Name() string {
	return serde.NameOf(s.keys) + " → " + serde.NameOf(s.vals)
}

// KeyOf returns the key of an item, for a description of the item.
func (s kvSerde[K, V]) KeyOf(v *KV[K, V]) any { return v.Key }

// KeyLen returns the length of the encoded key with which an item begins.
func (s kvSerde[K, V]) KeyLen(src []byte) (int, error) {
	var k K
	return s.keys.Decode(src, &k)
}

func (s kvSerde[K, V]) Append(dst []byte, v *KV[K, V]) []byte {
	return s.vals.Append(s.keys.Append(dst, &v.Key), &v.Value)
}

func (s kvSerde[K, V]) Decode(src []byte, v *KV[K, V]) (int, error) {
	n, err := s.keys.Decode(src, &v.Key)
	if err != nil {
		return 0, fmt.Errorf("key: %w", err)
	}
	m, err := s.vals.Decode(src[n:], &v.Value)
	if err != nil {
		return 0, fmt.Errorf("value: %w", err)
	}
	return n + m, nil
}

// Decoder is for serde.DecoderOf.
func (s kvSerde[K, V]) Decoder() serde.DecodeFunc[KV[K, V]] {
	key, value := serde.DecoderOf(s.keys), serde.DecoderOf(s.vals)
	return func(r *serde.Reader, src []byte, v *KV[K, V]) (int, error) {
		n, err := key(r, src, &v.Key)
		if err != nil {
			return 0, fmt.Errorf("key: %w", err)
		}
		m, err := value(r, src[n:], &v.Value)
		if err != nil {
			return 0, fmt.Errorf("value: %w", err)
		}
		return n + m, nil
	}
}
