package runtime

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/position"
	"tailrace.dev/tailrace/tasks/progress"
)

// A task is at a clean point between two records, not in the middle of one, and not while timers are
// due.
func TestClean(t *testing.T) {
	table := progress.NewTable(map[uint32]uint32{0: 0})
	require.NoError(t, table.Register(&envelope.Producers{Stream: 0, Stage: 0, Tasks: 1}))
	reader := &task{assignment: assignment{spec: &exec.StageSpec{Inputs: []int{0}}}, in: input{table: table}}
	reader.promise.Time = exec.MinTime
	require.True(t, reader.clean())

	_, err := table.Marker(&envelope.Marker{Commit: 1, Watermark: 5})
	require.NoError(t, err)
	require.False(t, reader.clean(), "timers up to 5 are due")
	reader.pos.Units = 2 // of them have fired
	require.False(t, reader.clean())
	reader.promise.Time, reader.pos.Units = 5, 0
	require.True(t, reader.clean())

	reader.pos.Units = 1
	require.False(t, reader.clean(), "in the middle of a record")
	reader.pos = position.Position{Skip: 3, SkipAt: 9}
	require.False(t, reader.clean(), "an instance before has done a part of the record at the position")
	require.Equal(t, 3, reader.pos.Skipped(5))
	require.False(t, reader.clean())
	reader.pos.Units = 0 // the record is done
	require.True(t, reader.clean())

	// A source has no input that it could lag behind.
	source := &task{assignment: assignment{spec: &exec.StageSpec{Partitions: 1}}, in: input{table: progress.NewTable(nil)}}
	source.promise.Time = exec.MinTime
	require.True(t, source.clean())
	source.in.table.Restore(nil, 3)
	source.promise.Time = 3
	require.True(t, source.clean())
	source.pos.Units = 1
	require.False(t, source.clean(), "timers are due")
}
