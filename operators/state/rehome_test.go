package state

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

func int64Of(key []byte) int64 {
	r := serde.NewReader(key)
	return r.Int64()
}

// The parts of the keys of a group are by remainder.
const partsOfKeys, keysOfParts = 3, 12

// Parts of a group are re-homed there and back: each key has what it has in a table that re-homes nothing, in
// the group it is in and in no other; and the change log of each group restores it, with inserts of what it
// does not hold only.
func TestRehomedKeysKeepTheirState(t *testing.T) {
	for _, kind := range []string{"map", "list", "panes"} {
		t.Run(kind, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				const groups = partsOfKeys + 1
				both, replayed := owners(kind, groups), owners(kind, groups)[0]
				moved, twin := both[0], both[1]
				var at [partsOfKeys]int
				logged := map[int]map[string]bool{}
				check := func(o owner) {
					for k := range int64(keysOfParts) {
						for g := range groups {
							if g == at[k%partsOfKeys] {
								require.Equal(t, twin.get(0, k), o.get(g, k), "key %d in group %d", k, g)
							} else {
								require.Empty(t, o.get(g, k), "key %d in group %d", k, g)
							}
						}
					}
					require.Equal(t, twin.Len(), o.Len())
				}
				commit := func() {
					out := exec.NewOutput(groups)
					moved.Changes(0, out)
					twin.Changes(0, exec.NewOutput(groups))
					require.Equal(t, twin.Bytes(), moved.Bytes())
					for g := range groups {
						if logged[g] == nil {
							logged[g] = map[string]bool{}
						}
						was := map[string]bool{}
						for k := range logged[g] {
							was[k] = true
						}
						r := serde.NewReader(out.Section(g).Data)
						for range out.Section(g).Items {
							_, op, key := r.Uint64(), byte(r.Uint64()), r.Bytes()
							var value []byte
							if op != exec.OpDelete {
								value = r.Bytes()
							}
							require.NoError(t, r.Err())
							require.Equal(t, op == exec.OpInsert, op != exec.OpDelete && !was[string(key)])
							if logged[g][string(key)] = op != exec.OpDelete; op == exec.OpDelete {
								delete(logged[g], string(key))
							}
							require.NoError(t, replayed.Apply(g, op, key, value))
						}
					}
					require.NoError(t, replayed.Restored(nil))
					check(replayed)
				}
				for range rapid.IntRange(1, 100).Draw(t, "steps") {
					k := rapid.Int64Range(0, keysOfParts-1).Draw(t, "key")
					part := int(k % partsOfKeys)
					switch rapid.IntRange(0, 9).Draw(t, "do") {
					case 0, 1:
						to := part + 1 - at[part] // there or back
						require.NoError(t, exec.Rehome([]exec.StateTable{moved}, at[part], to, func(hash uint64, key []byte) bool {
							require.Equal(t, exec.HashKey(key), hash)
							return int(int64Of(key)%partsOfKeys) == part
						}))
						at[part] = to
						check(moved)
						commit()
					case 2:
						commit()
					case 3, 4:
						moved.remove(at[part], k)
						twin.remove(0, k)
					default:
						moved.put(at[part], k)
						twin.put(0, k)
					}
				}
				commit()
				check(moved)
			})
		})
	}
}

// A timer fires once, in the group that its key is in, wherever that has been; so does what has an end.
func TestRehomedTimersFireOnce(t *testing.T) {
	ts := NewTimers("t", 2, serde.Int64)
	one, two := int64(1), int64(2)
	ts.Set(0, &one, 10)
	ts.Set(0, &two, 10)
	onlyOne := func(_ uint64, key []byte) bool { return int64Of(key) == 1 }
	tables := []exec.StateTable{ts.Table()}
	for _, way := range [][2]int{{0, 1}, {1, 0}, {0, 1}} {
		require.NoError(t, exec.Rehome(tables, way[0], way[1], onlyOne))
		ts.Table().Changes(0, exec.NewOutput(2))
	}
	fired := map[int64]int{}
	for {
		if _, due := ts.Next(20); !due {
			break
		}
		if _, group, key, ok := ts.Pop(20); ok {
			require.NotContains(t, fired, key)
			fired[key] = group
		}
	}
	require.Equal(t, map[int64]int{1: 1, 2: 0}, fired)
	require.Zero(t, ts.Table().Len())

	x := NewExpiring("x", 2, serde.Int64, serde.Int64, 10, func() int64 { return 5 })
	require.NoError(t, x.Put(0, &one, &two))
	require.NoError(t, exec.Rehome(x.Tables(), 0, 1, onlyOne))
	require.Nil(t, x.Get(0, &one))
	require.Equal(t, two, *x.Get(1, &one))
	var m exec.Meter
	_, err := x.Advance(14, &m)
	require.NoError(t, err)
	require.NotNil(t, x.Get(1, &one))
	_, err = x.Advance(15, &m)
	require.NoError(t, err)
	require.Zero(t, x.m.Len())
}

// noted closes no windows, and knows which panes it has been told of.
type noted struct {
	open
	panes map[[3]int64]bool // group, key, end
}

func (n *noted) Restored(group int, key, end int64) { n.panes[[3]int64{int64(group), key, end}] = true }

func (n *noted) Dropped(group int) {
	maps.DeleteFunc(n.panes, func(p [3]int64, _ bool) bool { return p[0] == int64(group) })
}

// What closes windows is told of the panes in both groups, as they are now, and of none that has been dropped.
func TestRehomedPanesClose(t *testing.T) {
	closing := &noted{panes: map[[3]int64]bool{}}
	m := NewPaneTable[int64, int64]("m", 2, serde.Int64, serde.Int64, closing, "")
	for _, k := range []int64{1, 2, 3} {
		for _, end := range []int64{20, 10} {
			m.Upsert(0, &k, end)
			closing.Restored(0, k, end) // the operator tells it
		}
	}
	m.Changes(0, exec.NewOutput(2))
	one, three := int64(1), int64(3)
	m.DropPanes(m.Find(0, &one, 0, 100), 0, 10)
	m.DropPanes(m.Find(0, &three, 0, 100), 0, 20)
	require.NoError(t, exec.Rehome([]exec.StateTable{m}, 0, 1, func(_ uint64, key []byte) bool { return int64Of(key) != 2 }))
	require.Equal(t, map[[3]int64]bool{{0, 2, 10}: true, {0, 2, 20}: true, {1, 1, 20}: true}, closing.panes)
	m.Changes(0, exec.NewOutput(2))
	require.Nil(t, m.Find(1, &three, 0, 100))
	require.Equal(t, 2, m.index.Size())
}

// What cannot be re-homed says so, why, and what to do.
func TestRehomeRefuses(t *testing.T) {
	all := func(uint64, []byte) bool { return true }
	shared := NewMap("shared", 2, serde.Int64, serde.Int64)
	shared.Stays(SharesClocks)
	require.ErrorIs(t, exec.Rehome([]exec.StateTable{shared}, 0, 1, all), exec.ErrStays)
	require.ErrorContains(t, exec.Rehome([]exec.StateTable{shared}, 0, 1, all), "keys of a group share its clocks, and a part of it cannot take one along; use ")
	require.ErrorContains(t, exec.Rehome(nil, 1, 1, all), "to itself")

	for _, kind := range []string{"map", "list", "panes"} {
		for _, disk := range []bool{false, true} {
			o := owners(kind, 2)[0]
			if disk {
				o.StateTable.(interface{ Spill(h exec.Home) }).Spill(newShelf(0))
			}
			o.put(0, 1)
			o.put(1, 1)
			o.Changes(0, exec.NewOutput(2))
			require.ErrorContains(t, exec.Rehome([]exec.StateTable{o.StateTable}, 0, 1, all), "in both", kind)
		}
	}
}
