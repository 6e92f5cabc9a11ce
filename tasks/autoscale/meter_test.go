package autoscale

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/rescale/policy"
	"tailrace.dev/tailrace/tasks/status"
)

// A sample has the rates between two readings of the same instances, and a lag between the moments
// at which the log ended before and behind the place of a task.
func TestMeter(t *testing.T) {
	m := NewMeter("s")
	st := &layout.Stage{Tasks: 2, Groups: 3, Owner: []int{0, 0, 1}}
	a := status.Snapshot{Stage: "s", Task: 0, Instance: 1, ItemsIn: 100, SleptMS: 500, Through: 10, Load: []uint64{70, 30, 0}}
	b := status.Snapshot{Stage: "s", Task: 1, Instance: 4, ItemsIn: 10, SleptMS: 990, Through: 10, Load: []uint64{0, 0, 10}}
	read := func(at int64, tail uint64) *policy.Sample {
		other := a
		other.Stage, other.ItemsIn = "other", 7
		left := a
		left.Task = 2
		return m.Sample(at, sharedlog.LSN(tail), st, []status.Snapshot{other, a, b, left})
	}
	require.Nil(t, read(1000, 10), "there is one reading")
	a.ItemsIn, a.SleptMS, a.Load, a.Through = 300, 1000, []uint64{250, 50, 0}, 15
	b.SleptMS, b.Through = 3000, 20
	s := read(3000, 20)
	require.Equal(t, &policy.Sample{
		At: 3000, Groups: 3, Owners: []int{0, 0, 1}, Load: []int64{180, 20, 0},
		Tasks: []policy.Task{{In: 100, Busy: 0.75, Lag: 1}, {In: 0, Busy: 0, Lag: 0}},
	}, s)
	s = read(4000, 20)
	require.Equal(t, 2.0, s.Tasks[0].Lag, "the log does not grow, and the task is where it was")
	a.Through = 3
	s = read(5000, 25)
	require.Equal(t, 4.0, s.Tasks[0].Lag, "the log ended behind it whenever the meter looked")
	b.Instance, b.ItemsIn = 5, 0
	require.Nil(t, read(6000, 30), "a task was restarted")
	require.NotNil(t, read(7000, 30))
	st.Tasks = 3
	require.Nil(t, read(8000, 30), "a newcomer has one reading")
	require.NotNil(t, read(9000, 30))
	for at := int64(10); at < 2*longest; at++ {
		require.NotNil(t, read(at*1000, 30))
	}
	require.Len(t, m.ends, longest)
}
