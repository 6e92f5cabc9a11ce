package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Rates are of the last seconds, not of an instance before, and nil until there is one.
func TestRates(t *testing.T) {
	now := time.Unix(1000, 0)
	s := New(func() time.Time { return now }, 1)
	read := func() (in, out *float64) { return s.rates.perSecond(s.reading(now)) }
	in, out := read()
	require.Nil(t, in)
	require.Nil(t, out)
	s.Measure(true)
	now = now.Add(rateLeast - 1)
	s.ItemsIn.Add(10)
	in, _ = read()
	require.Nil(t, in, "over too short a time")
	for range 50 { // 100 in and 300 out a second, a commit each 200 ms
		now = now.Add(200 * time.Millisecond)
		s.ItemsIn.Add(20)
		s.ItemsOut.Add(60)
		s.Measure(false)
	}
	in, out = read()
	require.InDelta(t, 100, *in, 1e-6)
	require.InDelta(t, 300, *out, 1e-6)
	for range 50 { // nothing comes
		now = now.Add(200 * time.Millisecond)
		s.Measure(false)
	}
	in, out = read()
	require.Zero(t, *in)
	require.Zero(t, *out)
	s.ItemsIn.Store(0)
	s.Measure(true)
	in, _ = read()
	require.Nil(t, in)
	now = now.Add(3 * time.Second)
	in, _ = read()
	require.Zero(t, *in)
	r := s.Read("stage", 1)
	require.NotNil(t, r.InPerSecond)
}
