package progress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks/envelope"
)

// The epoch of the producers is the least one that one of them sends by which has not ended. One that a plan adds, or names
// again, sends by that plan's until it says something else.
func TestEpochOfProducers(t *testing.T) {
	const greatest = ^uint32(0)
	table := NewTable(map[uint32]uint32{0: 1, 2: 3})
	require.NoError(t, table.Register(&envelope.Producers{Stream: 0, Stage: 1, Tasks: 2}))
	require.Zero(t, table.Epoch())
	commits := map[[2]uint32]uint64{}
	says := func(stage, task uint32, m envelope.Marker) {
		commits[[2]uint32{stage, task}]++
		m.Stage, m.Task, m.Commit = stage, task, commits[[2]uint32{stage, task}]
		fresh, err := table.Marker(&m)
		require.NoError(t, err)
		require.True(t, fresh)
	}
	says(1, 0, envelope.Marker{Epoch: 1})
	says(1, 1, envelope.Marker{Epoch: 1})
	require.Zero(t, table.Epoch(), "the producers of the other stream are not known")
	require.NoError(t, table.Register(&envelope.Producers{Stream: 2, Stage: 3, Tasks: 1}))
	require.Zero(t, table.Epoch())
	says(3, 0, envelope.Marker{Epoch: 2})
	require.EqualValues(t, 1, table.Epoch())
	says(1, 1, envelope.Marker{Epoch: 2})
	require.EqualValues(t, 1, table.Epoch())

	restored := NewTable(map[uint32]uint32{0: 1, 2: 3})
	restored.Restore(table.AppendSeen(nil), 0)
	require.EqualValues(t, 1, restored.Epoch())

	require.NoError(t, table.Register(&envelope.Producers{Stream: 0, Stage: 1, Tasks: 3, Plan: 2, Epoch: 1}))
	says(1, 0, envelope.Marker{Epoch: 2})
	require.EqualValues(t, 1, table.Epoch(), "the new one")
	says(1, 2, envelope.Marker{Epoch: 3, Ended: true, Left: true})
	require.EqualValues(t, 2, table.Epoch())
	require.NoError(t, table.Register(&envelope.Producers{Stream: 0, Stage: 1, Tasks: 3, Plan: 3, Epoch: 1}))
	require.EqualValues(t, 1, table.Epoch(), "it is named again")
	for _, p := range [][2]uint32{{1, 0}, {1, 1}, {1, 2}} {
		says(p[0], p[1], envelope.Marker{Epoch: 2, Ended: true})
	}
	require.EqualValues(t, 2, table.Epoch())
	says(3, 0, envelope.Marker{Epoch: 2, Ended: true})
	require.Equal(t, greatest, table.Epoch())
}
