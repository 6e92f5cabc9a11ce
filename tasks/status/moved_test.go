package status

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMoves(t *testing.T) {
	s := New(time.Now, 1)
	require.Nil(t, s.read().Moved)
	s.Moves.Took(3 * time.Millisecond)
	s.Moves.Came(Given, 4)
	s.Moves.Came(Copied, 3)
	s.Moves.Came(Fetched, 2)
	s.Moves.Came(Restored, 1)
	s.Moves.Asked(true, 3)
	s.Moves.Asked(false, 16)
	s.Moves.Asked(false, 0)
	s.Moves.Received(100)
	want := Moved{Given: 4, Copied: 3, Fetched: 2, Restored: 1, Bytes: 100, Demand: Fetches{1, 3}, Background: Fetches{2, 16}}
	r := s.read()
	require.Equal(t, &want, r.Moved)
	require.InDelta(t, 3, r.MovingMS, 0)

	for range 98 {
		s.Moves.Waited(100 * time.Microsecond)
	}
	s.Moves.Waited(101 * time.Microsecond)
	s.Moves.Waited(time.Second)
	w := s.read().Moved.Waits
	require.EqualValues(t, 100, w.Total())
	for share, most := range map[float64]float64{0.5: 0.1, 0.98: 0.1, 0.99: 0.2, 0.991: 1000, 1: 1000} {
		require.InDelta(t, most, w.Quantile(share), 0, share)
	}
	s.Moves.Waited(time.Hour)
	now := s.read().Moved
	require.Equal(t, math.Inf(1), now.Waits.Quantile(1))

	now.Add(r.Moved, -1)
	require.Equal(t, &Moved{Waits: now.Waits}, now, "what has come since")
	now.Add(&want, 1)
	want.Waits = now.Waits
	require.Equal(t, &want, now)

	s.Began()
	require.Nil(t, s.read().Moved)
	require.Zero(t, s.read().MovingMS)
	require.Zero(t, (&Waits{}).Quantile(1))
}

func (s *Status) read() Snapshot { return s.Read("stage", 0) }
