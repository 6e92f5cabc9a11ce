package state

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// All entries of a key are in the part of the key, whatever else their table's keys have; those of a small table are
// in the head. Of a part that is not what it says nothing is added.
func TestParts(t *testing.T) {
	const groups, group = 1, 0
	tables := func() []exec.StateTable {
		small := NewMap("small", groups, serde.String, serde.Int64)
		small.KeepInMemory()
		return []exec.StateTable{
			small,
			NewMap("values", groups, serde.String, serde.Int64),
			NewList("list", groups, serde.String, serde.Int64),
			NewTimers("timers", groups, serde.String).Table(),
			NewMap("cells", groups, MapKeys(serde.String, serde.Int64), serde.Int64),
			NewTimers("cells.ends", groups, MapKeys(serde.String, serde.Int64)).Table(),
		}
	}
	from := tables()
	items := func(tables []exec.StateTable) (n []int) {
		for _, table := range tables {
			n = append(n, table.Len())
		}
		return n
	}
	out := exec.NewOutput(groups)
	keys := []string{"a", "b", "cc", "dd", "e"}
	for i, k := range keys {
		v := int64(i)
		require.NoError(t, from[0].(*Map[string, int64]).Put(group, &k, &v))
		require.NoError(t, from[1].(*Map[string, int64]).Put(group, &k, &v))
		for range 3 {
			_, err := from[2].(*List[string, int64]).Add(group, &k, v, &v)
			require.NoError(t, err)
			v += 1000
			from[3].(*Map[PaneKey[string], struct{}]).Upsert(group, &PaneKey[string]{k, v})
			require.NoError(t, from[4].(*Map[mapKey[string, int64], int64]).Put(group, &mapKey[string, int64]{k, v}, &v))
			from[5].(*Map[PaneKey[mapKey[string, int64]], struct{}]).Upsert(group, &PaneKey[mapKey[string, int64]]{mapKey[string, int64]{k, v}, v})
		}
	}
	want := items(from)
	for i, table := range from {
		table.Changes(i, out)
	}
	parts, ok, err := exec.Detach(from, []int{group}).Split(group, groups)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, len(keys), parts[exec.Head].Total)
	to := tables()
	require.NoError(t, exec.Arrive(to, group, groups, &parts[exec.Head]))
	for i, k := range keys {
		part := exec.SubGroupOf(exec.HashKey(serde.String.Append(nil, &k)), groups, exec.Parts)
		p := parts[part]
		require.Equal(t, 13, p.Total)
		for _, bad := range []exec.Part{
			{Number: part, Total: p.Total - 1, Items: p.Items},
			{Number: (part + 1) % exec.Parts, Total: p.Total, Items: p.Items},
			{Number: part, Total: p.Total, Items: p.Items[:len(p.Items)-1]},
			{Number: part, Total: p.Total, Items: append([]byte{9}, p.Items[1:]...)},
		} {
			require.Error(t, exec.Arrive(to, group, groups, &bad))
			require.Equal(t, i, to[1].Len())
		}
		require.NoError(t, exec.Arrive(to, group, groups, &p))
	}
	require.Equal(t, want, items(to))
	for i, table := range to {
		empty := exec.NewOutput(groups)
		table.Changes(i, empty)
		require.Empty(t, empty.Touched(), "what arrives is in the change log")
	}
	k, v := "a", int64(7)
	_, err = to[2].(*List[string, int64]).Add(group, &k, 7, &v)
	require.NoError(t, err)
	require.Equal(t, uint64(3), to[2].(*List[string, int64]).Get(group, &k)[1].Number(), "behind the numbers that have come")
}
