package index

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The index behaves like a map. The hash has few bits, so that the test covers runs of colliding
// slots that wrap around the end.
func TestIndexIsAMap(t *testing.T) {
	const groups = 3
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.IntRange(1, 64).Draw(t, "hashes")
		x := New[int64, string](groups, func(k *int64) uint64 { return uint64(*k) % uint64(few) * 0x9e3779b97f4a7c15 })
		type where struct {
			group int
			key   int64
		}
		twin := map[where]*Entry[int64, string]{}
		check := func() {
			seen := 0
			for g := range groups {
				x.Each(g, func(e *Entry[int64, string]) {
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
					x.Remove(e)
					require.Nil(t, x.Find(w.group, &w.key))
					return
				}
			},
			"drop a group": func(t *rapid.T) {
				g := rapid.IntRange(0, groups-1).Draw(t, "group")
				x.Detach(g)
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
