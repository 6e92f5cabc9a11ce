package manager

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStandbys(t *testing.T) {
	j := &Job{Name: "q", Program: "p", Format: "1", Standbys: 2, Stages: []Stage{{Name: "src", Tasks: 1}, {Name: "count", Tasks: 64}}}
	var workers []Worker
	for i := range 8 {
		workers = append(workers, Worker{Name: fmt.Sprint("w", i), Nonce: fmt.Sprint("n", i), Program: "p", Format: "1"})
	}
	workers[7].Stages = []string{"src"}
	chosen, moved := map[string]int{}, 0
	for i := range 64 {
		k := TaskKey{"q", 1, i}
		all := Standbys(j, k, "n0", workers)
		require.Len(t, all, 2)
		require.NotContains(t, all, "n0", "it is the task's own worker")
		require.NotContains(t, all, "n7", "it does not run this stage")
		require.NotEqual(t, all[0], all[1])
		shuffled := slices.Clone(workers)
		slices.Reverse(shuffled)
		require.Equal(t, all, Standbys(j, k, "n0", shuffled), "each worker must find the same")
		for _, n := range all {
			chosen[n]++
		}
		if !slices.Equal(all, Standbys(j, k, "n0", slices.Delete(slices.Clone(workers), 3, 4))) {
			moved++
		}
	}
	for n, c := range chosen {
		require.Greater(t, c, 8, "copies are not spread: %s has %d of 128", n, c)
	}
	require.Less(t, moved, 40, "one worker less has moved the copies of others")
	require.Len(t, Standbys(j, TaskKey{"q", 1, 0}, "n1", workers[:2]), 1, "as many as there are")
	require.Empty(t, Standbys(j, TaskKey{"q", 1, 0}, "n0", workers[:1]))
}
