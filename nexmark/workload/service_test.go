package workload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A task that always has items processes one in each item's cost, also if the system lets it sleep too long
// or keeps it waiting for a while; time in which it had no items is not saved up.
func TestService(t *testing.T) {
	now := time.Unix(1000, 0)
	s := &service{cost: 20 * time.Microsecond, now: func() time.Time { return now }}
	slept := 0
	s.sleep = func(d time.Duration) {
		now = now.Add(d + 300*time.Microsecond) // as a system does
		slept++
	}
	begin := now
	for range 100_000 {
		s.item()
		now = now.Add(time.Microsecond) // which it computes
	}
	require.InDelta(t, 2000, now.Sub(begin).Milliseconds(), 25)
	require.InDelta(t, 2000, slept, 100, "a turn each ms")
	begin, now = now, now.Add(15*time.Millisecond) // it does not run
	for range 10_000 {
		s.item()
	}
	require.InDelta(t, 200, now.Sub(begin).Milliseconds(), 2, "it catches up")
	now = now.Add(time.Minute)
	begin = now
	for range 10_000 {
		s.item()
	}
	require.InDelta(t, 200-20, now.Sub(begin).Milliseconds(), 2, "only serviceSlack of a minute counts")
}
