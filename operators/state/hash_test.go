package state

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/serde"
)

// Every kind of key has a hash, and equal keys have the same one.
func TestHashers(t *testing.T) {
	hashes[int64](t, serde.Int64, 1, 2, -1)
	hashes[uint64](t, serde.Uint64, 1, 2, 1<<63)
	hashes[int](t, serde.Int, 1, 2, -1)
	hashes[int32](t, serde.Int32, 1, 2, -1)
	hashes[string](t, serde.String, "", "a", "b")
	hashes(t, serde.Serde[PaneKey[int64]](paneKeySerde[int64]{serde.Int64}), PaneKey[int64]{7, 8}, PaneKey[int64]{8, 7}, PaneKey[int64]{8, 8})
	hashes(t, serde.Serde[PaneKey[string]](paneKeySerde[string]{serde.String}), PaneKey[string]{"7", 8}, PaneKey[string]{"8", 7})
}

func hashes[K comparable](t *testing.T, keys serde.Serde[K], ks ...K) {
	h, seen := Hasher(keys), map[uint64]K{}
	for i := range ks {
		k := ks[i]
		require.Equal(t, h(&k), h(&ks[i]))
		require.NotContains(t, seen, h(&k))
		seen[h(&k)] = k
	}
}
