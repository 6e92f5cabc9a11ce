package autoscale

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog/mem"
)

// The bounds of each stage are in the log until they are taken away.
func TestBounds(t *testing.T) {
	log := mem.New(mem.Options{})
	load := func() map[string]Request {
		all, err := Load(t.Context(), log, "j-1")
		require.NoError(t, err)
		return all
	}
	require.Empty(t, load())
	a, b := Request{"a", 2, 8}, Request{"b", 1, 3}
	require.NoError(t, Store(t.Context(), log, "j-1", a))
	require.NoError(t, Store(t.Context(), log, "j-1", b))
	require.NoError(t, Store(t.Context(), log, "j-2", Request{"a", 5, 6}))
	require.Equal(t, map[string]Request{"a": a, "b": b}, load())
	b.Max = 4
	require.NoError(t, Store(t.Context(), log, "j-1", b))
	require.NoError(t, Store(t.Context(), log, "j-1", Request{Stage: "a"}))
	require.NoError(t, Store(t.Context(), log, "j-1", Request{Stage: "c"}))
	require.Equal(t, map[string]Request{"b": b}, load())
	require.NoError(t, Store(t.Context(), log, "j-1", Request{Stage: "b"}))
	require.Empty(t, load())
}
