package rescale

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A task that has left its stage, and starts again when the log has a plan that names it, is a newcomer of
// that plan. If it took the plan for one that it had reached, it would wait for ever.
func TestSourceNewcomerThatHadLeft(t *testing.T) {
	left := &Marker{LSN: 20, Plan: 2, Ended: true, Left: true}
	plans := []Plan{
		{Number: 1, LSN: 1, Tasks: 2, Owners: []int{0, 1}, Source: true},
		{Number: 2, LSN: 10, Tasks: 1, Owners: []int{0, 0}, Moves: []Move{{From: 1, To: 0, Groups: []int{1}}}, Source: true},
		{Number: 3, LSN: 30, Tasks: 2, Owners: []int{0, 1}, Moves: []Move{{From: 0, To: 1, Groups: []int{1}, Early: true}}, Source: true},
	}
	task, effects, err := NewSource(1, 2, left, plans)
	require.NoError(t, err)
	require.True(t, task.Silent())
	require.True(t, task.Open(), "it enters by plan 3")
	require.NotEmpty(t, effects, "it looks for its giver's markers")

	none, _, err := NewSource(1, 2, left, plans[:2])
	require.NoError(t, err)
	require.False(t, none.Open(), "no plan names it again")
}

// A task that has read its partitions to the end acts on no plan. It is about to end; a ceiling of it would be the
// end of time, to which a giver would advance whose partitions are idle, and what these have later would be late.
func TestSourceAtItsEnd(t *testing.T) {
	begin := Plan{Number: 1, LSN: 1, Tasks: 2, Owners: []int{0, 1}, Source: true}
	plan := &Plan{Number: 2, LSN: 10, Tasks: 2, Owners: []int{1, 0}, Moves: []Move{{From: 1, To: 0, Groups: []int{1}}, {From: 0, To: 1, Groups: []int{0}}}, Source: true}
	task := func() *Task {
		task, _, err := NewSource(0, 2, nil, []Plan{begin})
		require.NoError(t, err)
		return task
	}
	reads := task()
	require.NotEmpty(t, reads.Reached(plan, 100))
	require.EqualValues(t, 2, reads.Plan())

	ends := task()
	require.Empty(t, ends.Reached(plan, maxTime))
	require.EqualValues(t, 1, ends.Plan(), "its last marker says that it did not know of the plan")
	require.False(t, ends.Open(), "nothing keeps it from ending")
}

// A marker that says its task is idle is no ceiling: while it counts, consumers let event time pass it.
func TestSourceIdleMarkerIsNoHold(t *testing.T) {
	begin := Plan{Number: 1, LSN: 1, Tasks: 2, Owners: []int{0, 1}, Source: true}
	plan := &Plan{Number: 2, LSN: 10, Tasks: 2, Owners: []int{1, 1}, Moves: []Move{{From: 0, To: 1, Groups: []int{0}}}, Source: true}
	giver, _, err := NewSource(0, 2, nil, []Plan{begin})
	require.NoError(t, err)
	giver.Reached(plan, 100)
	giver.Saw(1, &Marker{LSN: 20, Plan: 2, Watermark: 50, Idle: true}, nil)
	require.Empty(t, giver.Clean(100))
	giver.Saw(1, &Marker{LSN: 30, Plan: 2, Watermark: 50}, nil)
	effects := giver.Clean(49)
	require.Empty(t, effects, "it is below the ceiling")
	effects = giver.Clean(50)
	require.Len(t, effects, 1)
	require.Equal(t, []int{0}, effects[0].Release.Groups)
}
