package chain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
)

type toSlot struct{ key string }

func (r toSlot) Group(hash uint64, key []byte) int {
	if string(key) == r.key {
		return 5
	}
	return exec.GroupOf(hash, 4)
}

// Items go where the output's router says, from one item to the next; without one, where the hash says, and
// to no slot.
func TestRouter(t *testing.T) {
	out := exec.NewOutput(6)
	w := Writer[int64]{out: out, groups: 4}
	a, b := exec.GroupOf(exec.HashKey([]byte("a")), 4), exec.GroupOf(exec.HashKey([]byte("b")), 4)
	require.Equal(t, []int{a, b}, []int{w.groupOf([]byte("a")), w.groupOf([]byte("b"))})
	out.Route(toSlot{"a"})
	require.Equal(t, []int{5, b}, []int{w.groupOf([]byte("a")), w.groupOf([]byte("b"))})
	out.Route(nil)
	require.Equal(t, a, w.groupOf([]byte("a")))
}
