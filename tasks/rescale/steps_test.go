package rescale

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Steps lead to the goal, and each of them is a plan that its tasks can carry out.
func TestSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.IntRange(1, 24).Draw(t, "groups")
		tasks, goalTasks := rapid.IntRange(1, groups).Draw(t, "tasks"), rapid.IntRange(1, groups).Draw(t, "goal tasks")
		owners := rapid.SliceOfN(rapid.IntRange(0, tasks-1), groups, groups).Draw(t, "owners")
		s := Stage{Owners: owners, Tasks: goalTasks}
		anyOwners := func(s Stage) []int { return rapid.Permutation(Range(s)).Draw(t, "goal") }
		goal := rapid.SampledFrom([]Assign{Sticky, Range, Hash, anyOwners}).Draw(t, "strategy")(s)
		batch := rapid.IntRange(0, 4).Draw(t, "batch")
		early := rapid.Bool().Draw(t, "early")
		steps := Steps(owners, tasks, goal, goalTasks, batch, early)

		if tasks == goalTasks && slices.Equal(owners, goal) {
			require.Empty(t, steps)
			return
		}
		if batch == 0 {
			require.Len(t, steps, 1)
		}
		now, at := slices.Clone(owners), tasks
		moved := map[int]bool{}
		owned := counts(owners, tasks)
		for i, step := range steps {
			gives, gets, pairs := map[int]int{}, map[int]int{}, map[[2]int]bool{}
			for _, m := range step.Moves {
				require.NotEqual(t, m.From, m.To)
				require.NotEmpty(t, m.Groups)
				require.True(t, slices.IsSorted(m.Groups))
				require.False(t, pairs[[2]int{m.From, m.To}], "two moves from %d to %d", m.From, m.To)
				pairs[[2]int{m.From, m.To}] = true
				require.Equal(t, early && m.To >= at, m.Early, "step %d, move %+v", i, m)
				for _, g := range m.Groups {
					require.False(t, moved[g], "group %d moves twice", g)
					moved[g] = true
					require.Equal(t, m.From, now[g])
					require.Equal(t, goal[g], m.To)
					now[g] = m.To
				}
				gives[m.From] += len(m.Groups)
				gets[m.To] += len(m.Groups)
			}
			if batch > 0 {
				for task, n := range gives {
					require.LessOrEqual(t, n, batch, "step %d: task %d gives", i, task)
				}
				for task, n := range gets {
					require.LessOrEqual(t, n, batch, "step %d: task %d receives", i, task)
				}
			}
			require.Equal(t, now, step.Owners)
			require.Less(t, slices.Max(now), step.Tasks)
			for task := at; task < step.Tasks; task++ {
				require.NotZero(t, gets[task], "step %d: newcomer %d has nowhere to start", i, task)
			}
			for task := step.Tasks; task < at; task++ {
				require.True(t, gives[task] > 0 || owned[task] == 0, "step %d: task %d leaves, and is not told so", i, task)
			}
			if goalTasks > tasks {
				require.GreaterOrEqual(t, step.Tasks, at)
			} else {
				require.LessOrEqual(t, step.Tasks, at)
			}
			at = step.Tasks
		}
		require.Equal(t, goal, now)
		require.Equal(t, goalTasks, at)
	})
}

// The order of moves, as text.
func TestOrderOfSteps(t *testing.T) {
	text := func(steps []Step) (all []string) {
		for _, s := range steps {
			line := fmt.Sprintf("%d tasks:", s.Tasks)
			for _, m := range s.Moves {
				line += fmt.Sprintf(" %d→%d %v", m.From, m.To, m.Groups)
				if m.Early {
					line += " early"
				}
			}
			all = append(all, line)
		}
		return all
	}
	// Newcomers first, then moves between tasks that stay.
	require.Equal(t, []string{
		"3 tasks: 0→2 [0 1] early",
		"3 tasks: 0→1 [2] 1→2 [4]",
	}, text(Steps([]int{0, 0, 0, 0, 1, 1}, 2, []int{2, 2, 1, 0, 2, 1}, 3, 2, true)))
	// The tasks that leave: the highest first.
	require.Equal(t, []string{
		"4 tasks: 2→0 [4] 3→1 [6]",
		"2 tasks: 2→0 [5] 3→1 [7]",
	}, text(Steps([]int{0, 0, 1, 1, 2, 2, 3, 3}, 4, []int{0, 0, 1, 1, 0, 0, 1, 1}, 2, 1, true)))
	// A task without groups leaves in a plan without moves.
	require.Equal(t, []string{"1 tasks:"}, text(Steps([]int{0, 0}, 2, []int{0, 0}, 1, 2, true)))
}
