package manager

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A copy for a savepoint ends late: its job was stopped, and runs again, and another savepoint is wanted. It is no answer for that one.
func TestCopyOfAFormerSavepoint(t *testing.T) {
	c, now := New(Default, 0), int64(0)
	job := Job{Name: "q", Stages: []Stage{{Name: "src", Tasks: 1}}}
	// until lets the core decide until it asks for something.
	until := func(k ActionKind) {
		for range 10 {
			now += 50
			for _, a := range c.Tick(now) {
				if a.Kind == k {
					return
				}
			}
		}
		require.Fail(t, "no action", "%v", k)
	}
	runs := func(savepoint uint64) {
		job.Stop, job.Savepoint = false, savepoint
		c.View(now, []Job{job}, nil)
		until(Register)
		c.Registered(now, "q", "q-1", 0, "")
		until(Copy)
	}
	runs(7)
	job.Stop = true
	c.View(now, []Job{job}, nil)
	for range 3 {
		c.Tick(now)
	}
	require.Equal(t, Stopped, c.jobs["q"].phase)
	runs(8)
	require.False(t, c.Copied(now, "q", 7, "no store"))
	require.False(t, c.Copied(now, "q", 7, ""))
	require.Equal(t, Running, c.jobs["q"].phase)
	require.True(t, c.Copied(now, "q", 8, ""))
	require.Equal(t, Draining, c.jobs["q"].phase)
}
