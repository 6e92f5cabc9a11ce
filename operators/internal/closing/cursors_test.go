package closing

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// When a part of a key group is re-homed, the other group has the cursor that is further on.
func TestRehomedCursors(t *testing.T) {
	key := func(k int64) *int64 { return &k }
	cursors := []struct { // in their order
		time int64
		key  *int64
	}{{10, key(3)}, {10, key(5)}, {10, nil}, {20, key(1)}, {20, nil}}
	none := func(uint64, []byte) bool { return false }
	for from := -1; from < len(cursors); from++ {
		for to := -1; to < len(cursors); to++ {
			t.Run(fmt.Sprint(from, " ", to), func(t *testing.T) {
				c := NewCursors("w", 2, serde.Int64)
				if from >= 0 {
					c.Set(0, 0, cursors[from].time, cursors[from].key)
				}
				if to >= 0 {
					c.Set(1, 0, cursors[to].time, cursors[to].key)
				}
				require.NoError(t, exec.Rehome([]exec.StateTable{c.Table()}, 0, 1, none))
				for group, at := range []int{from, max(from, to)} {
					if at < 0 {
						require.Equal(t, exec.MinTime, c.Fired(group, 0, key(1)))
						continue
					}
					want := NewCursors("w", 2, serde.Int64)
					want.Set(group, 0, cursors[at].time, cursors[at].key)
					for k := range int64(8) {
						require.Equal(t, want.Fired(group, 0, &k), c.Fired(group, 0, &k), "key %d in group %d", k, group)
					}
				}
			})
		}
	}
}
