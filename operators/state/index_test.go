package state

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/serde"
)

// The index behaves like a map. The hash has few bits, so that the test covers runs of colliding
// slots that wrap around the end.
func TestKeyIndexIsAMap(t *testing.T) {
	const groups = 3
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.IntRange(1, 64).Draw(t, "hashes")
		x := NewIndex[int64, string](groups, serde.Int64)
		x.hash = func(k *int64) uint64 { return mixInt(uint64(*k) % uint64(few)) }
		type where struct {
			group int
			key   int64
		}
		twin := map[where]*IndexEntry[int64, string]{}
		check := func() {
			seen := 0
			for g := range groups {
				x.each(g, func(e *IndexEntry[int64, string]) {
					seen++
					require.Same(t, twin[where{g, e.Key}], e)
					require.Same(t, e, x.Find(g, &e.Key))
				})
			}
			require.Equal(t, len(twin), seen)
		}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				w := where{rapid.IntRange(0, groups-1).Draw(t, "group"), rapid.Int64Range(0, 200).Draw(t, "key")}
				e := x.Find(w.group, &w.key)
				require.Same(t, twin[w], e)
				if e == nil {
					e = x.Insert(w.group, w.key)
					require.Zero(t, e.V)
					e.V = "taken"
					twin[w] = e
				}
			},
			"remove": func(t *rapid.T) {
				for w, e := range twin {
					delete(twin, w)
					x.remove(e)
					require.Nil(t, x.Find(w.group, &w.key))
					return
				}
			},
			"drop a group": func(t *rapid.T) {
				g := rapid.IntRange(0, groups-1).Draw(t, "group")
				x.detach(g)
				for w := range twin {
					if w.group == g {
						delete(twin, w)
					}
				}
			},
			"reset": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "one in ten") == 0 {
					x.Reset()
					clear(twin)
				}
			},
			"": func(t *rapid.T) { check() },
		})
	})
}

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
	h, seen := hasher(keys), map[uint64]K{}
	for i := range ks {
		k := ks[i]
		require.Equal(t, h(&k), h(&ks[i]))
		require.NotContains(t, seen, h(&k))
		seen[h(&k)] = k
	}
}
