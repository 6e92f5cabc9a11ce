package state

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// roomy is a Home that nothing is written to, because there is room in memory.
type roomy struct{ exec.Home }

func (roomy) Flush()                                                  {}
func (roomy) Limit() int                                              { return 1 << 20 }
func (roomy) Range(int, []byte, []byte, func(key, value []byte) bool) {}
func (roomy) Get(_ int, _, dst []byte) (value []byte, ok bool)        { return dst, false }

// A task has key groups for a while, again and again, and none when their windows close: it keeps nothing of
// panes that were in memory.
func TestPanesOfGroupsThatLeftAreForgotten(t *testing.T) {
	m := NewPaneTable[int64, int64]("m", 2, serde.Int64, serde.Int64, open{}, "")
	m.Spill(roomy{})
	put := func(group int, key, end int64) {
		_, p, _ := m.Upsert(group, &key, end)
		p.Acc++
	}
	const stays, ends = 7, 50
	for i := range int64(ends) {
		put(1, 2*stays, 10*(i+1))
		put(0, stays, 10*(i+1))
		m.Changes(0, exec.NewOutput(2))
		put(1, 2*stays, 10*(i+1))
		require.Nil(t, m.Detach(0))
		m.Changes(0, exec.NewOutput(2))
	}
	require.Len(t, m.disk.unsaved, ends, "those of the other group")
	for _, list := range m.disk.unsaved {
		require.Len(t, list, 1)
	}
	require.Nil(t, m.Detach(1))
	m.Changes(0, exec.NewOutput(2))
	require.Empty(t, m.disk.unsaved)
}
