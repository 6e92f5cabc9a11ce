package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The time for which a task sleeps is counted around each wait, also while it waits; another
// instance begins at 0.
func TestSlept(t *testing.T) {
	now := time.UnixMilli(1000)
	s := New(func() time.Time { return now }, 2)
	for range 2 { // the second instance has the same
		s.Output("keys", 3)
		s.Output("dead", 1)
	}
	slept := func() float64 {
		r := s.Read("stage", 0)
		return r.SleptMS
	}
	pass := func(ms int) { now = now.Add(time.Duration(ms) * time.Millisecond) }
	s.Began()
	pass(10)
	require.Zero(t, slept())
	s.Sleep()
	pass(20)
	require.Equal(t, 20.0, slept(), "it still sleeps")
	s.Wake(false)
	pass(30)
	require.Equal(t, 20.0, slept())
	s.Sleep()
	pass(5)
	s.Wake(true)
	require.Equal(t, 25.0, slept())
	waited := s.Read("stage", 0)
	require.Equal(t, 5.0, waited.WaitingMS)
	s.Moves.Took(2 * time.Millisecond)
	waited = s.Read("stage", 0)
	require.Equal(t, 2.0, waited.MovingMS)
	s.Load[1].Add(7)
	r := s.Read("stage", 0)
	require.Equal(t, []uint64{0, 7}, r.Load)
	s.Sent[0].Groups[2].Add(4)
	s.Sent[0].Groups[0].Add(1)
	s.Sent[0].Bytes.Add(60)
	r = s.Read("stage", 0)
	require.Equal(t, []Sent{{"keys", 5, 60, []uint64{1, 0, 4}, nil}, {"dead", 0, 0, []uint64{0}, nil}}, r.Sent)
	s.Began()
	r = s.Read("stage", 0)
	require.Equal(t, []Sent{{"keys", 0, 0, []uint64{0, 0, 0}, nil}, {"dead", 0, 0, []uint64{0}, nil}}, r.Sent)
	require.Zero(t, slept())
	waited = s.Read("stage", 0)
	require.Zero(t, waited.WaitingMS+waited.MovingMS)
	r = s.Read("stage", 0)
	require.Equal(t, []uint64{0, 0}, r.Load)
}
