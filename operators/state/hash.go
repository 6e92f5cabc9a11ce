package state

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"tailrace.dev/tailrace/operators/serde"
)

// mixInt spreads an integer over 64 bits (a multiplication folded on itself). Like the hash that
// determines key groups it has no seed: keys come from the job, and its results must not depend on
// the process it runs in.
func mixInt(v uint64) uint64 {
	hi, lo := bits.Mul64(v^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}

// Hasher returns a hash of K: a multiplication for the integers that most keys are, with or without
// a time, else the hash of the encoded key.
func Hasher[K comparable](keys serde.Serde[K]) func(*K) uint64 {
	var f any
	switch any((*K)(nil)).(type) {
	case *int64:
		f = func(k *int64) uint64 { return mixInt(uint64(*k)) }
	case *uint64:
		f = func(k *uint64) uint64 { return mixInt(*k) }
	case *int:
		f = func(k *int) uint64 { return mixInt(uint64(*k)) }
	case *string:
		f = func(k *string) uint64 { return xxhash.Sum64String(*k) }
	case *PaneKey[int64]:
		f = func(k *PaneKey[int64]) uint64 { return mixInt(uint64(k.Key) ^ mixInt(uint64(k.Pane))) }
	default:
		var enc []byte
		f = func(k *K) uint64 {
			enc = keys.Append(enc[:0], k)
			return xxhash.Sum64(enc)
		}
	}
	return f.(func(*K) uint64)
}
