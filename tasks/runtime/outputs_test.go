package runtime

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/exec"
)

// make counts an item of n bytes in an output of the task.
func (o *outputs) make(output, n int) { o.streams[output].Add(o.streams[output].Section(0), n) }

// When each unit of work makes about as much as the one before, a few calls suffice to find out how
// many units to process at once: as many as make half a commit at most, and not less than an eighth
// of that if more are allowed. A unit that makes more than that is processed alone.
func TestPace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := outputs{streams: []*exec.Output{exec.NewOutput(1), exec.NewOutput(1)}, step: firstStep, mostUnits: mostStep, commitSize: 1 << 20}
		changes := 0
		for range rapid.IntRange(1, 4).Draw(t, "phases") {
			unit := rapid.SampledFrom([]int{0, 1, 100, 5_000, 100_000, 3 << 20}).Draw(t, "bytes of a unit")
			inState := rapid.Bool().Draw(t, "in state")
			for call := range 12 {
				if n := o.step * unit; inState {
					changes += n
				} else {
					o.make(call%2, n)
				}
				o.pace(changes)
				require.Positive(t, o.step)
				require.LessOrEqual(t, o.step, mostStep)
			}
			most := o.commitSize / 2
			require.True(t, o.step*unit <= most || o.step == 1, "%d units of %d bytes", o.step, unit)
			require.True(t, o.step == mostStep || o.step*unit >= most/8, "%d units of %d bytes", o.step, unit)
			for _, s := range o.streams { // a commit
				s.Reset()
			}
			o.appended()
			changes = 0
		}
	})
}

// What is pending is counted over all outputs, until it is appended.
func TestPendingBytes(t *testing.T) {
	o := outputs{streams: []*exec.Output{exec.NewOutput(1), exec.NewOutput(1)}}
	o.make(0, 30)
	o.make(1, 12)
	require.Equal(t, 42, o.pendingBytes())
	require.Equal(t, 50, o.made(8))
	o.streams[0].Reset()
	require.Equal(t, 12, o.pendingBytes())
	require.Equal(t, 50, o.made(8), "it counts what was ever made")
	o.flushed, o.parts = 30, true
	o.appended()
	require.Zero(t, o.flushed)
	require.False(t, o.parts)
}
