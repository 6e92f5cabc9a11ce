package rescale

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A goal of two steps: a step starts when newcomers run, no savepoint is made, and the step before
// is done; a backlog makes one step of all; a cancelled goal is noted in a plan.
func TestControl(t *testing.T) {
	first := Plan{Number: 1, LSN: 1, Tasks: 1, Owners: []int{0, 0, 0, 0}}
	goal := Goal{Tasks: 2, Owners: []int{0, 0, 1, 1}, Batch: 1}
	runs := false
	f := &Facts{Marks: [][]*Marker{{nil}}, Runs: func(stage, task int) bool { return runs }}
	c := NewControl([]string{"keys"}, []Plan{first}, []*Goal{nil})
	require.True(t, c.Next(f).Idle)
	c.Ask(0, goal)
	require.Equal(t, "task keys/0 has not started", c.Next(f).Waits)
	f.Marks[0][0] = &Marker{LSN: 5, Position: 4, Owned: []int{0, 1, 2, 3}, Plan: 1}
	d := c.Next(f)
	require.Equal(t, "newcomer keys/1 does not run", d.Waits)
	require.Equal(t, [][]int{{1}}, d.Start)
	require.Nil(t, d.Plans)
	runs, f.Savepoint = true, true
	require.Equal(t, "a savepoint is being made", c.Next(f).Waits)
	f.Savepoint, f.Backlog = false, true
	d = c.Next(f)
	require.Equal(t, []Plan{{Number: 2, Tasks: 2, Owners: []int{0, 0, 1, 1}, Moves: []Move{{0, 1, []int{2, 3}, true}}}}, d.Plans)
	require.Equal(t, []*Goal{nil}, d.Goals)
	f.Backlog = false
	d = c.Next(f)
	step := Plan{Number: 2, Tasks: 2, Owners: []int{0, 0, 1, 0}, Moves: []Move{{0, 1, []int{2}, true}}}
	require.Equal(t, []Plan{step}, d.Plans)
	require.Equal(t, []int{0}, d.Producers)
	step.LSN = 9
	c.Appended([]Plan{step}, d.Goals)

	require.Equal(t, "keys: task 0 has not released key group 2", c.Next(f).Waits)
	f.Marks[0][0] = &Marker{LSN: 10, Position: 6, Owned: []int{0, 1, 3}, Plan: 1}
	require.Equal(t, "keys: task 1 has not taken over key group 2", c.Next(f).Waits)
	f.Marks[0] = append(f.Marks[0], &Marker{LSN: 11, Position: 6, Owned: []int{2}, Plan: 2})
	require.Equal(t, "keys: task 1 has not processed its input up to LSN 9", c.Next(f).Waits)
	f.Marks[0][1] = &Marker{LSN: 12, Position: 10, Owned: []int{2}, Plan: 2}

	// The goal is in the plan: the next process that appends plans resumes it, or cancels it.
	c = NewControl([]string{"keys"}, []Plan{step}, d.Goals)
	d = c.Next(f)
	require.Equal(t, []Move{{0, 1, []int{3}, false}}, d.Plans[0].Moves)
	require.Empty(t, d.Producers)
	c.Cancel(0)
	d = c.Next(f)
	require.Equal(t, []Plan{{Number: 3, Tasks: 2, Owners: []int{0, 0, 1, 0}}}, d.Plans)
	step = d.Plans[0]
	step.LSN = 15
	c.Appended([]Plan{step}, d.Goals)
	require.True(t, c.Next(f).Idle)

	c.Ask(0, goal)
	f.Marks[0][0] = &Marker{LSN: 20, Position: 19, Owned: []int{0, 1, 3}, Plan: 3, Ended: true}
	d = c.Next(f)
	require.Equal(t, []int{0}, d.Ended)
	require.True(t, d.Idle)
	require.Nil(t, c.Goal(0))
}

// The goal of a stage that has ended is given up, in the plan too, and does not keep another stage from
// its own.
func TestGoalOfAnEndedStage(t *testing.T) {
	plans := []Plan{{Number: 2, LSN: 9, Tasks: 1, Owners: []int{0, 0}}, {Number: 2, LSN: 9, Tasks: 1, Owners: []int{0, 0}}}
	goal := &Goal{Tasks: 2, Owners: []int{0, 1}}
	f := &Facts{Marks: [][]*Marker{
		{{LSN: 20, Position: 19, Owned: []int{0, 1}, Plan: 2, Ended: true}},
		{{LSN: 21, Position: 19, Owned: []int{0, 1}, Plan: 2}},
	}, Runs: func(int, int) bool { return true }}
	c := NewControl([]string{"a", "b"}, plans, []*Goal{goal, goal})
	d := c.Next(f)
	require.Equal(t, []int{0}, d.Ended)
	require.Empty(t, d.Plans[0].Moves)
	require.Equal(t, 1, d.Plans[0].Tasks)
	require.Len(t, d.Plans[1].Moves, 1)
	require.Equal(t, []*Goal{nil, nil}, d.Goals)

	// Without another goal the plan only says that there is none any more.
	c = NewControl([]string{"a", "b"}, plans, []*Goal{goal, nil})
	d = c.Next(f)
	require.Len(t, d.Plans, 2)
	require.Equal(t, []*Goal{nil, nil}, d.Goals)
}

// A task of a stage that reads a source may have ended with what it was to give, and is none of the stage any more. Its
// number is not free: the goal is given up.
func TestGoalOfAStageThatHasEndedInPart(t *testing.T) {
	plans := []Plan{{Number: 2, LSN: 9, Tasks: 1, Owners: []int{0, 0}, Moves: []Move{{From: 1, To: 0, Groups: []int{1}}}, Source: true}}
	f := &Facts{Marks: [][]*Marker{{
		{LSN: 20, Owned: []int{0}, Plan: 2},
		{LSN: 15, Owned: []int{1}, Plan: 1, Ended: true},
	}}, Runs: func(int, int) bool { return false }}
	c := NewControl([]string{"a"}, plans, []*Goal{{Tasks: 2, Owners: []int{0, 1}}})
	require.Equal(t, []int{0}, c.Next(f).Ended)
	require.Nil(t, c.Goal(0))

	f.Marks[0] = []*Marker{{LSN: 22, Owned: []int{0, 1}, Plan: 2}, {LSN: 21, Plan: 2, Ended: true, Left: true}}
	c = NewControl([]string{"a"}, plans, []*Goal{{Tasks: 2, Owners: []int{0, 1}}})
	require.Equal(t, [][]int{{1}}, c.Next(f).Start, "it has left: it may enter again")
}

// A group that ends with its giver keeps the step open until the receiver is behind the plan: it looks
// for the giver's markers when it gets there.
func TestStepOfAnEndedGiver(t *testing.T) {
	p := &Plan{Number: 2, LSN: 50, Tasks: 2, Owners: []int{0, 0}, Moves: []Move{{From: 1, To: 0, Groups: []int{1}}}}
	giver := &Marker{LSN: 60, Position: 55, Owned: []int{1}, Plan: 1, Ended: true}
	receiver := &Marker{LSN: 58, Position: 50, Owned: []int{0}, Plan: 1}
	require.Equal(t, "task 0 has not ended", Unfinished(p, []*Marker{receiver, giver}))
	receiver.LSN, receiver.Position, receiver.Plan = 61, 51, 2
	require.Empty(t, Unfinished(p, []*Marker{receiver, giver}))
}
