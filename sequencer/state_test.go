package sequencer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// A change takes effect only if the key has the expected value, which may be empty, and always
// returns the value that the key has afterwards.
func TestChanges(t *testing.T) {
	s := NewState()
	for i, x := range []struct {
		old, new, holds string
		ok              bool
	}{
		{"x", "a", "", false}, // the key is absent
		{"", "a", "a", true},
		{"", "b", "a", false}, // the key is present
		{"b", "c", "a", false},
		{"a", "b", "b", true},
		{"b", "", "", true},
		{"b", "c", "", false},
		{"", "c", "c", true},
	} {
		ef := s.Apply(Entry{Kind: KindChange, Key: "k", Old: []byte(x.old), New: []byte(x.new)})
		require.Equal(t, x.ok, ef.OK, "change %d", i)
		require.Equal(t, x.holds, string(ef.Value), "change %d", i)
		require.Equal(t, x.holds, string(s.Value("k")), "change %d", i)
	}
}

// A trim point is at or below the tail, and never moves down.
func TestTrims(t *testing.T) {
	s := NewState()
	s.Apply(Entry{Kind: KindOpen, Incarnation: 1})
	s.Apply(Entry{Kind: KindCut, Cut: []Length{{Shard: 1, Length: 9}}})
	require.EqualValues(t, 10, s.Tail())
	for i, x := range []struct {
		before, is sharedlog.LSN
		ok         bool
	}{
		{11, 0, false},
		{5, 5, true},
		{3, 5, true},
		{5, 5, true},
		{11, 5, false},
		{10, 10, true},
		{9, 10, true},
	} {
		ef := s.Apply(Entry{Kind: KindTrim, Tag: "t", Before: x.before})
		require.Equal(t, x.ok, ef.OK, "trim %d", i)
		require.Equal(t, x.is, ef.Before, "trim %d", i)
		require.Equal(t, x.is, s.TrimPoint("t"), "trim %d", i)
	}
}

// Ready does not return entries again after a part of them has been applied.
func TestEntriesAreHandedOutOnce(t *testing.T) {
	c := NewCore(NewState())
	for _, key := range []string{"a", "b", "c"} {
		c.Propose(Entry{Kind: KindChange, Key: key, New: []byte("v")})
	}
	require.Len(t, c.Ready(), 3)
	c.Advance(1, func(Effect) {})
	require.Empty(t, c.Ready())
	require.EqualValues(t, 4, c.Propose(Entry{Kind: KindChange, Key: "d", New: []byte("v")}))
	es := c.Ready()
	require.Len(t, es, 1)
	require.Equal(t, "d", es[0].Key)
	c.Advance(3, func(ef Effect) { require.True(t, ef.OK) })
	require.EqualValues(t, 4, c.State().Applied())
}
