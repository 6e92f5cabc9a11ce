package retention

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/tags"
)

// The lowest hold that has not expired counts, whatever its name; of two equal ones the name
// decides, so that reports do not change from round to round.
func TestLowestHold(t *testing.T) {
	now := time.UnixMilli(10_000)
	for _, c := range []struct {
		name  string
		holds map[string]hold
		want  Held
	}{
		{"none", nil, Held{}},
		{"the lowest", map[string]hold{"a": {From: 7, Until: 10_001}, "b": {From: 5, Until: 10_001}, "c": {From: 9, Until: 10_001}}, Held{5, "b"}},
		{"expired (G7)", map[string]hold{"a": {From: 7, Until: 10_001}, "b": {From: 5, Until: 10_000}}, Held{7, "a"}},
		{"all expired", map[string]hold{"a": {From: 7, Until: 1}}, Held{}},
		{"alike", map[string]hold{"b": {From: 5, Until: 10_001}, "a": {From: 5, Until: 10_001}}, Held{5, "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := mem.New(mem.Options{})
			if c.holds != nil {
				value, err := json.Marshal(c.holds)
				require.NoError(t, err)
				_, err = log.CompareAndSet(t.Context(), tags.HoldsKey("j"), nil, value)
				require.NoError(t, err)
			}
			for range 20 { // the order of a map
				low, err := lowestHold(t.Context(), log, "j", now)
				require.NoError(t, err)
				require.Equal(t, c.want, low)
			}
		})
	}
}

// A hold is in the metadata until it is released, beside other holds; an expired one is removed
// with the next change.
func TestHolds(t *testing.T) {
	log := mem.New(mem.Options{})
	expired, err := json.Marshal(map[string]hold{"dead": {From: 1, Until: 1}})
	require.NoError(t, err)
	_, err = log.CompareAndSet(t.Context(), tags.HoldsKey("j"), nil, expired)
	require.NoError(t, err)
	low := func() Held {
		h, err := lowestHold(t.Context(), log, "j", time.Now())
		require.NoError(t, err)
		return h
	}
	first, err := TakeHold(t.Context(), log, "j", "first", 30)
	require.NoError(t, err)
	second, err := TakeHold(t.Context(), log, "j", "second", 20)
	require.NoError(t, err)
	require.Equal(t, Held{20, "second"}, low())
	second.Release()
	require.Equal(t, Held{30, "first"}, low())
	c, err := log.Get(t.Context(), tags.HoldsKey("j"))
	require.NoError(t, err)
	require.NotContains(t, string(c.Value), "dead")
	first.Release()
	require.Equal(t, Held{}, low())
	c, err = log.Get(t.Context(), tags.HoldsKey("j"))
	require.NoError(t, err)
	require.Empty(t, c.Value)
}
