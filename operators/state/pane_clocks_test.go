package state

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/watermark"
)

// stopped is an operator that sets no clocks.
type stopped struct{}

func (stopped) RestoreClocks(int, bool)           {}
func (stopped) Restored(*PaneEntry[int64, int64]) {}
func (stopped) Dropped(int)                       {}

// A key that has a clock with a timer, and no pane, moves with its clock, and nothing of it stays. One without a timer has nothing
// to move.
func TestRehomedClocksWithoutPanes(t *testing.T) {
	m := NewPaneTable[int64, int64]("m", 2, serde.Int64, serde.Int64, open{}, "")
	m.UseClocks(stopped{})
	one, two := int64(1), int64(2)
	c := m.Clock(m.AddKey(0, &one))
	c.Own, c.Timer = 70, 90
	want := *c
	m.Clock(m.AddKey(0, &two)).Own = 80
	require.NoError(t, exec.Rehome([]exec.StateTable{m}, 0, 1, func(uint64, []byte) bool { return true }))
	require.Nil(t, m.Key(0, &one))
	require.NotNil(t, m.Key(1, &one))
	want.Timer = watermark.NoTimer // the operator sets it again
	require.Equal(t, want, *m.Clock(m.Key(1, &one)))
	require.Nil(t, m.Key(1, &two))
}
