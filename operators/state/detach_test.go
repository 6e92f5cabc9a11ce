package state

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/panes"
	"tailrace.dev/tailrace/operators/serde"
)

// open closes no windows.
type open struct{}

func (open) Restored(int, int64, int64)         {}
func (open) Dropped(int)                        {}
func (open) Spilled(OnDisk[int64], *panes.Ends) {}
func (open) RestoredOnDisk([]bool)              {}

// owner is a task's table in TestGroupsChangeOwners, by what all kinds have in common. Get returns what
// the table has for a key.
type owner struct {
	exec.StateTable
	put, remove func(group int, key int64)
	get         func(group int, key int64) []int64
}

func owners(kind string, groups int) (o [2]owner) {
	for i := range o {
		switch kind {
		case "map":
			m := NewMap("m", groups, serde.Int64, serde.Int64)
			o[i] = owner{m, func(g int, k int64) { v, _ := m.Upsert(g, &k); *v++ }, func(g int, k int64) { m.Delete(g, &k) }, func(g int, k int64) []int64 {
				if v := m.Get(g, &k); v != nil {
					return []int64{*v}
				}
				return nil
			}}
		case "list":
			m := NewList("m", groups, serde.Int64, serde.Int64)
			o[i] = owner{m, func(g int, k int64) { _, _ = m.Add(g, &k, k, &k) }, func(g int, k int64) { m.DropFirst(g, &k, min(1, len(m.Get(g, &k)))) }, func(g int, k int64) (all []int64) {
				for _, e := range m.Get(g, &k) {
					all = append(all, int64(e.seq))
				}
				return all
			}}
		case "panes":
			m := NewPaneTable[int64, int64]("m", groups, serde.Int64, serde.Int64, open{}, "")
			o[i] = owner{m, func(g int, k int64) { _, p, _ := m.Upsert(g, &k, 10*(1+k%3)); p.Acc++ }, func(g int, k int64) {
				if e := m.Find(g, &k, 0, 100); e != nil {
					m.DropPanes(e, 0, 100)
				}
			}, func(g int, k int64) (all []int64) {
				if e := m.Find(g, &k, 0, 100); e != nil {
					for j := range e.V.all {
						if p := &e.V.all[j]; !p.Dead {
							all = append(all, p.end, p.Acc)
						}
					}
				}
				return all
			}}
		}
	}
	return o
}

// Key groups move between two tables, as often as they like: each table has what one table for all
// groups would have of its groups, counts it, and what it writes to the change log is the same.
func TestGroupsChangeOwners(t *testing.T) {
	for _, kind := range []string{"map", "list", "panes"} {
		t.Run(kind, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				const groups, keys = 3, 40
				both, one := owners(kind, groups), owners(kind, groups)[0]
				var at [groups]int
				commit := func() {
					outs := []*exec.Output{exec.NewOutput(groups), exec.NewOutput(groups), exec.NewOutput(groups)}
					both[0].Changes(0, outs[0])
					both[1].Changes(0, outs[1])
					one.Changes(0, outs[2])
					for g := range groups {
						require.Equal(t, outs[2].Section(g).Data, outs[at[g]].Section(g).Data)
						require.Zero(t, outs[1-at[g]].Section(g).Items)
					}
				}
				for range rapid.IntRange(1, 200).Draw(t, "steps") {
					g, k := rapid.IntRange(0, groups-1).Draw(t, "group"), rapid.Int64Range(0, keys-1).Draw(t, "key")
					switch rapid.IntRange(0, 9).Draw(t, "do") {
					case 0:
						commit()
						state := both[at[g]].Detach(g)
						require.NotNil(t, state)
						require.Nil(t, both[at[g]].get(g, k))
						at[g] = 1 - at[g]
						if rapid.Bool().Draw(t, "copy") {
							require.NoError(t, state.Items(0, func(item []byte) error {
								r := serde.NewReader(item)
								table, op, key, value := r.Uint64(), byte(r.Uint64()), r.Bytes(), r.Bytes()
								require.NoError(t, r.Err())
								require.Equal(t, len(item), r.Pos())
								require.Zero(t, table)
								return both[at[g]].Apply(g, op, key, value)
							}))
							require.NoError(t, both[at[g]].Restored([]int{g}))
							continue
						}
						require.NoError(t, both[at[g]].Attach(g, state))
					case 1:
						commit()
					case 2, 3:
						both[at[g]].remove(g, k)
						one.remove(g, k)
					default:
						both[at[g]].put(g, k)
						one.put(g, k)
					}
				}
				commit()
				for g := range groups {
					for k := range int64(keys) {
						require.Equal(t, one.get(g, k), both[at[g]].get(g, k))
					}
				}
				require.Equal(t, one.Len(), both[0].Len()+both[1].Len())
				require.Equal(t, one.Bytes(), both[0].Bytes()+both[1].Bytes())
				for g := range groups {
					both[at[g]].put(g, 1)
					require.Nil(t, both[at[g]].Detach(g), "it has changed since the last commit")
				}
				for _, o := range both {
					require.Zero(t, o.Len())
					require.Zero(t, o.Bytes())
				}
				require.Error(t, both[0].Attach(0, &mapGroup[string, string]{}))
			})
		})
	}
}
