package handover

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
)

// What records wait for is asked for first, in one request with the head of its group; then the groups one by one,
// some parts at a time, each part once.
func TestAsks(t *testing.T) {
	a := newAsks([]int{5, 6}, true)
	a.demand(6, []int{200, 3, 200})
	a.demand(6, []int{9, exec.Head})
	of, urgent, ok := a.next()
	require.True(t, ok)
	require.True(t, urgent)
	require.Equal(t, ask{6, []int{exec.Head, 200, 3, 9}}, of)
	of, urgent, ok = a.next()
	require.True(t, ok)
	require.False(t, urgent)
	require.Equal(t, ask{5, []int{exec.Head, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}}, of)
	a.demand(6, []int{3}) // it is on its way
	a.demand(5, []int{7, 255})
	of, urgent, _ = a.next()
	require.True(t, urgent)
	require.Equal(t, ask{5, []int{255}}, of)
	a.demand(6, []int{201})
	of, _, _ = a.next()
	require.Equal(t, ask{6, []int{201}}, of, "the head is on its way")
	a.first([]int{6})
	seen := map[int]int{}
	for {
		of, urgent, ok := a.next()
		if !ok {
			break
		}
		require.False(t, urgent)
		require.LessOrEqual(t, len(of.parts), partsAtOnce)
		if seen[6] == 0 {
			require.Equal(t, 6, of.group)
		}
		seen[of.group] += len(of.parts)
	}
	require.Equal(t, map[int]int{5: exec.Parts + 1 - 17, 6: exec.Parts + 1 - 5}, seen)

	a = newAsks([]int{5, 6}, true)
	a.has(5)
	of, _, _ = a.next()
	require.Equal(t, 6, of.group)
	a = newAsks([]int{5}, false)
	a.demand(5, []int{1})
	of, _, _ = a.next()
	require.Equal(t, ask{group: 5}, of)
}
