package balance

import (
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/route"
)

// What a planner of the user's returns is made only if each key group has an owner, and each task a key group. Otherwise the owners
// stay, and the state says why. It is given copies.
func TestOwnPlanner(t *testing.T) {
	var returns []int
	var fails error
	var seen *Load
	r := Request{Stage: "sums", Dispatch: Own, Shares: []float64{3, 1}, Planner: func(l *Load) ([]int, error) {
		copied := *l
		seen = &copied
		if returns == nil && fails == nil {
			return []int{l.Owners[7]}, nil // which does not exist
		}
		l.Owners[0], l.Items[0], l.Shares[0] = 9, 9, 9
		return returns, fails
	}}
	require.NoError(t, r.Check())
	b, err := New(&uneven{owner: []int{0, 0, 0, 1}}, slog.New(slog.NewTextHandler(io.Discard, nil)), 1, r)
	require.NoError(t, err)
	for _, c := range []struct {
		returns []int
		fails   error
		want    string
	}{
		{[]int{1, 0, 0, 1}, nil, ""},
		{[]int{1, 0, 0}, nil, "stage sums has 4 key groups: owners are given for 3"},
		{[]int{1, 0, 2, 0}, nil, "key group 2 has owner 2: tasks are 0 to 1"},
		{[]int{1, 0, -1, 0}, nil, "key group 2 has owner -1"},
		{[]int{1, 1, 1, 1}, nil, "task 0 owns no key group"},
		{nil, errors.New("no table of customers"), "the planner of stage sums: no table of customers"},
		{nil, nil, "the planner of stage sums panicked: runtime error: index out of range"},
	} {
		returns, fails, b.state.Error = c.returns, c.fails, ""
		s := &route.Stage{Owners: []int{0, 0, 0, 1}, Slots: 1, Tasks: 2, Items: []int64{5, 1, 1, 1}, Shares: []float64{3, 1}}
		got := b.plan(s)
		require.Equal(t, &route.Stage{Owners: []int{0, 0, 0, 1}, Slots: 1, Tasks: 2, Items: []int64{5, 1, 1, 1}, Shares: []float64{3, 1}}, s, "it is the core's")
		require.Equal(t, 1, seen.Slots)
		require.Equal(t, 2, seen.Tasks)
		if c.want == "" {
			require.Equal(t, c.returns, got)
			require.Empty(t, b.state.Error)
			c.returns[3] = 7
			require.Equal(t, 1, got[3], "the slice is the planner's")
			continue
		}
		require.Equal(t, []int{0, 0, 0, 1}, got)
		require.Contains(t, b.state.Error, c.want)
	}
}

// A planner and its dispatch are given together.
func TestOwnPlannerIsGiven(t *testing.T) {
	without := Request{Stage: "sums", Dispatch: Own}
	require.ErrorContains(t, without.Check(), "there is no planner; set Planner")
	_, err := New(&uneven{}, nil, 1, without)
	require.ErrorContains(t, err, "there is no planner")
	other := Request{Stage: "sums", Dispatch: "auto", Planner: func(l *Load) ([]int, error) { return l.Owners, nil }}
	require.ErrorContains(t, other.Check(), `dispatch "auto": a planner is given, which is for dispatch own`)
	unknown := Request{Stage: "sums", Dispatch: "theirs"}
	require.ErrorContains(t, unknown.Check(), "use hash, least-key")
}
