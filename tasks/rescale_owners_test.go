package tasks_test

import (
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/rescale"
)

// uneven are owners of 16 key groups: the first of two tasks has three quarters.
func uneven() []int { return []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1} }

// A rescale that was asked for other owners than the stage has is refused.
func TestRescaleOfOtherOwners(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().UnixMilli()
		plan, want := working(t, 1000, func(k int) int64 { return begin + int64(k)*2 }, 0, file)
		job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{Parallelism: 2, Groups: 16, Logger: quiet})
		require.NoError(t, err)
		first := slices.Clone(job.Layout().Stages[1].Owner)
		_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 2, Owners: uneven(), Have: first})
		require.NoError(t, err)
		_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 2, Owners: first, Have: first})
		require.ErrorIs(t, err, rescale.ErrChanged)
		_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 3, Have: uneven()})
		require.ErrorIs(t, err, rescale.ErrChanged, "another number of tasks")
		require.Equal(t, uneven(), job.Layout().Stages[1].Owner)
		require.NoError(t, job.Wait())
		sameRows(t, want, lines(t, file))
	})
}
