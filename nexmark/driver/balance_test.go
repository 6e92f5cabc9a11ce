package driver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A stall is a time in which a task has read nothing, unless it is shorter than what is between two
// readings that can differ, or the task has never read anything.
func TestStalls(t *testing.T) {
	const ms = time.Millisecond
	s := newStalls(200 * ms)
	for at := time.Duration(0); at < time.Second; at += 10 * ms {
		s.see(at, 0, 0)
		s.see(at, 1, uint64(at/(100*ms))+1)
	}
	require.Zero(t, s.until(time.Second), "it has read something ten times")
	s.see(1090*ms, 1, 10)
	s.see(1200*ms, 1, 11)
	require.Equal(t, 300*ms, s.total, "nothing between 0.9 s and 1.2 s")
	require.Equal(t, 300*ms, s.until(1399*ms))
	require.Equal(t, 500*ms, s.until(1400*ms), "and nothing since")
	s.see(1500*ms, 1, 5) // another instance
	require.Equal(t, 600*ms, s.until(1500*ms))
}
