package rescale

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Two tasks that exchange groups both release before they wait.
func TestExchange(t *testing.T) {
	plans := []Plan{{Number: 1, LSN: 1, Tasks: 2, Owners: []int{0, 1}}}
	swap := &Plan{Number: 2, LSN: 9, Tasks: 2, Owners: []int{1, 0}, Moves: []Move{{From: 0, To: 1, Groups: []int{0}}, {From: 1, To: 0, Groups: []int{1}}}}
	task, effects, err := New(0, 2, nil, plans)
	require.NoError(t, err)
	require.Empty(t, effects)
	effects = task.Reached(swap, 50)
	require.Equal(t, []Effect{
		{Do: Commit, Release: &Release{Plan: 2, Groups: []int{0}}},
		{Do: Follow, From: 1, At: 9},
	}, effects)
	require.False(t, task.Holds())
	require.Empty(t, task.Owned(nil))
	require.EqualValues(t, 2, task.Plan())

	// The other one's marker, which releases group 1. What it had read below P and had not processed
	// is read again before the commit, whose low then covers it.
	r := &Release{Plan: 2, From: 1, Groups: []int{1}, Bounds: []int64{70}, LSN: 12, Position: 10, Low: 7, Watermark: 50}
	require.Equal(t, []Effect{
		{Do: Back, Back: &Readback{Low: 7, Until: 10, Groups: []int{1}}},
		{Do: Commit},
		{Do: Take, From: 1, At: 12, Groups: []int{1}},
		{Do: Unfollow, From: 1},
	}, task.Saw(1, &Marker{LSN: 12, Position: 10, Plan: 2}, r))
	require.Equal(t, []int{1}, task.Owned(nil))
	require.True(t, task.Waits(1, 10))
	require.False(t, task.Waits(1, 9))
	task.Arrived([]int{1})
	require.False(t, task.Open())
	require.True(t, task.Counts(1, 10))
	require.False(t, task.Counts(0, 10))
}

// A task that waits for groups promises neither a time above the watermark of P, nor that it is
// idle: its consumers would pass it.
func TestCap(t *testing.T) {
	plans := []Plan{{Number: 1, LSN: 1, Tasks: 2, Owners: []int{0, 1}}}
	task, _, err := New(0, 2, nil, plans)
	require.NoError(t, err)
	promises := func(time int64, idle bool, wantTime int64, wantIdle bool) {
		t.Helper()
		gotTime, gotIdle := task.Cap(time, idle)
		require.Equal(t, wantTime, gotTime)
		require.Equal(t, wantIdle, gotIdle)
	}
	promises(90, true, 90, true)
	task.Reached(&Plan{Number: 2, LSN: 9, Tasks: 1, Owners: []int{0, 0}, Moves: []Move{{From: 1, Groups: []int{1}}}}, 50)
	promises(50, true, 50, true)
	promises(90, true, 50, false)
	// It has the group, but not its timers, the first of which is at 70.
	task.Saw(1, &Marker{LSN: 12, Position: 10, Ended: true, Left: true}, &Release{Plan: 2, From: 1, Groups: []int{1}, Bounds: []int64{70}, LSN: 12, Position: 10, Low: 10})
	promises(90, false, 69, false)
	task.Arrived([]int{1})
	promises(90, true, 90, true)
}

// Without its plans, a task cannot say what it owns.
func TestNewNeedsPlans(t *testing.T) {
	_, _, err := New(3, 2, nil, nil)
	require.EqualError(t, err, "task 3: the log has no plan")
	left, _, err := New(3, 1, &Marker{Plan: 4, Ended: true, Left: true}, nil)
	require.NoError(t, err)
	require.True(t, left.Silent())
	require.False(t, left.Open(), "no plan names it again")
	_, _, err = New(3, 2, nil, []Plan{{Number: 4, Owners: []int{0}}})
	require.EqualError(t, err, "task 3: plan 4 has 1 key groups, the stage has 2")
	for _, begin := range []func(int, int, *Marker, []Plan) (*Task, []Effect, error){New, NewSource} {
		later := []Plan{{Number: 2, LSN: 9, Tasks: 2, Owners: []int{0, 1}}, {Number: 3, LSN: 12, Tasks: 2, Owners: []int{0, 1}}}
		_, _, err = begin(1, 2, nil, later)
		require.EqualError(t, err, "task 1 has made no marker, and the log has no plan that gives it its key groups: the oldest is plan 2")
		_, _, err = begin(1, 2, &Marker{Owned: []int{1}, Plan: 2}, later)
		require.NoError(t, err)
		_, _, err = begin(2, 2, nil, later)
		require.NoError(t, err, "the next plan is to name it")
		later[0].Moves = []Move{{From: 0, To: 1, Groups: []int{1}}}
		_, _, err = begin(1, 2, nil, later)
		require.NoError(t, err)
	}
}

// At P the giver fires all timers up to the watermark of P before it releases: its receiver has
// promised that watermark. A timer that it does not have itself yet holds it.
func TestReleaseWaitsForTimers(t *testing.T) {
	plans := []Plan{{Number: 1, LSN: 1, Tasks: 2, Owners: []int{0, 1}}}
	task, _, err := New(0, 2, nil, plans)
	require.NoError(t, err)
	task.Reached(&Plan{Number: 2, LSN: 9, Tasks: 2, Owners: []int{0, 0}, Moves: []Move{{From: 1, Groups: []int{1}}}}, 50)
	task.Saw(1, &Marker{LSN: 12, Position: 10, Plan: 2}, &Release{Plan: 2, From: 1, Groups: []int{1}, Bounds: []int64{70}, LSN: 12, Position: 10, Low: 10})
	// Event time stands at 69, for group 1 is missing; the watermark of plan 3 is 90.
	require.Empty(t, task.Reached(&Plan{Number: 3, LSN: 20, Tasks: 2, Owners: []int{1, 0}, Moves: []Move{{From: 0, To: 1, Groups: []int{0}}}}, 90))
	require.True(t, task.Holds())
	require.Empty(t, task.Clean(69))
	task.Arrived([]int{1})
	require.Empty(t, task.Clean(69), "its own timers have not fired yet")
	require.EqualValues(t, 2, task.Plan(), "its successor must reach plan 3 again")
	require.Equal(t, []Effect{{Do: Commit, Release: &Release{Plan: 3, Groups: []int{0}}}}, task.Clean(90))
	require.False(t, task.Holds())
	require.EqualValues(t, 3, task.Plan())
}

// A newcomer that restarts below P processes each group from the position of its own release on,
// which no marker of its own says.
func TestNewcomerRestarts(t *testing.T) {
	plans := []Plan{
		{Number: 1, LSN: 1, Tasks: 2, Owners: []int{0, 1}},
		{Number: 2, LSN: 20, Tasks: 3, Owners: []int{2, 2}, Moves: []Move{{From: 0, To: 2, Groups: []int{0}, Early: true}, {From: 1, To: 2, Groups: []int{1}, Early: true}}},
	}
	task, effects, err := New(2, 2, &Marker{LSN: 30, Position: 12, Watermark: 5, Owned: []int{0, 1}, Plan: 2}, plans)
	require.NoError(t, err)
	require.Equal(t, []Effect{{Do: Follow, From: 0, At: 20}, {Do: Follow, From: 1, At: 20}}, effects)
	require.Equal(t, []int{0, 1}, task.Owned(nil))
	require.True(t, task.Waits(1, 13))
	task.Saw(0, &Marker{LSN: 25, Plan: 1}, &Release{Plan: 2, From: 0, Groups: []int{0}, LSN: 25, Position: 10, Low: 10})
	task.Saw(1, &Marker{LSN: 26, Plan: 1}, &Release{Plan: 2, From: 1, Groups: []int{1}, LSN: 26, Position: 15, Low: 15})
	require.False(t, task.Open())
	require.True(t, task.Counts(0, 12))
	require.False(t, task.Counts(1, 14))
	require.True(t, task.Counts(1, 15))
}
