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
