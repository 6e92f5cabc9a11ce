package chain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

type sourceRuntime struct{ out *exec.Output }

func (r *sourceRuntime) Home(int) exec.Home      { return nil }
func (r *sourceRuntime) Task() (int, int)        { return 0, 1 }
func (r *sourceRuntime) Groups() int             { return 2 }
func (r *sourceRuntime) OutputGroups(int) int    { return 2 }
func (r *sourceRuntime) Promises(int) []int64    { return nil }
func (r *sourceRuntime) Output(int) *exec.Output { return r.out }
func (r *sourceRuntime) Now() int64              { return 0 }
func (r *sourceRuntime) Random() uint64          { return 0 }
func (r *sourceRuntime) Fence() operators.Fence  { return operators.Fence{} }
func (r *sourceRuntime) Arrived(int64)           {}
func (r *sourceRuntime) Late(int)                {}
func (r *sourceRuntime) Count(string, int64)     {}

// newSource returns the chain of a source of two partitions of ten items each.
func newSource(t *testing.T, owned ...int) exec.Chain {
	var items []optest.Timed[int64]
	for i := range int64(10) {
		items = append(items, optest.At(i, i))
	}
	job := operators.NewJob("j")
	in := operators.FromSource(job, "in", optest.Items(0, items, items), serde.Int64)
	operators.ToSink(operators.Rebalance(in, "out"), "sink", operators.FuncSink(func(*operators.Batch[int64]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	c, err := plan.Stages[0].New(&sourceRuntime{exec.NewOutput(2)})
	require.NoError(t, err)
	require.NoError(t, c.Open(owned))
	return c
}

// all polls until the chain has nothing to read, and returns how many items there were.
func all(t *testing.T, c exec.Chain) (items int) {
	for {
		r, err := c.Poll(exec.Budget{})
		require.NoError(t, err)
		if items += r.Items; r.Items == 0 {
			return items
		}
	}
}

func positions(t *testing.T, c exec.Chain) []exec.Position {
	ps, err := c.Positions(nil)
	require.NoError(t, err)
	return ps
}

// A partition is read from the position at which another task has given it away, and not before its
// state has come (Read). One that was given is not read any more.
func TestPartitionsMove(t *testing.T) {
	giver, receiver := newSource(t, 0, 1), newSource(t)
	r, err := giver.Poll(exec.Budget{Units: 3})
	require.NoError(t, err)
	read := r.Items
	require.Positive(t, read)
	at := positions(t, giver)
	require.NoError(t, giver.Give([]int{0}))
	require.NoError(t, receiver.Take([]int{0}, at))
	require.Zero(t, all(t, receiver), "its state has not come")
	receiver.Read([]int{1})
	require.Zero(t, all(t, receiver), "that of another one has")
	receiver.Read([]int{0})
	rest := all(t, receiver)
	require.Equal(t, 20, read+rest+all(t, giver), "each item once")
	for _, p := range positions(t, giver) {
		require.Equal(t, "in/1", p.Name)
	}

	// A giver that starts again from the marker of its release skips what it gave.
	again := newSource(t, 1)
	require.Error(t, again.Restore(at))
	again = newSource(t, 1)
	require.NoError(t, again.Give([]int{0}))
	require.NoError(t, again.Restore(at))
	require.Equal(t, 20, read+rest+all(t, again))
}
