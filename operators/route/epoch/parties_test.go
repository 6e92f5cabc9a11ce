package epoch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/route"
)

// tables returns empty tables of the epochs 0 to n-1, for two hash groups and two slots.
func tables(t *testing.T, n int) (all []*route.Table) {
	for e := range n {
		table, err := route.NewTable(uint32(e), 2, 2, nil)
		require.NoError(t, err)
		all = append(all, table)
	}
	return all
}

// What is wanted is reached once. Who moves key groups later does not have them moved back.
func TestWantIsReachedOnce(t *testing.T) {
	c := NewControl(&Plan{Number: 1, Owners: [][]int{{0, 1, 0, 1}}, Table: tables(t, 1)[0]})
	require.NoError(t, c.Ask(&Want{Owners: [][]int{{1, 1, 0, 1}}}))
	facts := &Facts{Adopted: [][]uint32{{0, 0}}}
	d := c.Next(facts)
	require.Equal(t, Move, d.Kind)
	c.Appended(d.Plan)
	require.Equal(t, Decision{Done: true}, c.Next(facts))
	other := *d.Plan
	other.Number++
	other.Owners = [][]int{{0, 0, 0, 1}}
	c.Appended(&other)
	require.Equal(t, Decision{Done: true}, c.Next(facts))
}

// A producer that reads an older plan again sends by the newest table.
func TestOlderPlansChangeNothing(t *testing.T) {
	all := tables(t, 3)
	p := NewProducer(all[1], 1)
	p.Plan(all[0])
	require.False(t, p.Take(false))
	p.Plan(all[2])
	p.Plan(all[1])
	require.True(t, p.Due())
	require.True(t, p.Take(false))
	require.Same(t, all[2], p.Table())
	require.EqualValues(t, 2, p.Marker())
	require.False(t, p.Due())
}

// A log in which an epoch is missing, or begins before the one before is adopted, is an error of the task that
// reads it.
func TestPlansThatNoControlAppends(t *testing.T) {
	all := tables(t, 4)
	part := route.Part{Group: 1, N: 1}
	plan := func(e int) *Plan {
		return &Plan{Number: uint64(e), Table: all[e], Changes: []route.Change{{Part: part, From: 1, To: 2}}}
	}
	owns := func(int) bool { return true }
	c := NewConsumer(plan(1), 1)
	_, err := c.Plan(plan(3), owns)
	require.ErrorContains(t, err, "plan 3 has routing epoch 3; the task is in epoch 1, and has adopted 1")
	_, err = c.Plan(plan(2), owns)
	require.NoError(t, err)
	_, err = c.Plan(plan(3), owns)
	require.ErrorContains(t, err, "the task is in epoch 2, and has adopted 1")
	_, adopted := c.Promised(2, owns)
	require.True(t, adopted)
	_, err = c.Plan(plan(3), owns)
	require.NoError(t, err)
}
