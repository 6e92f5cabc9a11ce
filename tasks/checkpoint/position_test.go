package checkpoint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// The position of a follower is the lowest one of its groups, because the change log is trimmed by
// it.
func TestFollowerStandsAtTheLowest(t *testing.T) {
	c := newChanges(t, 1)
	store := storetest.NewMem()
	for i, to := range []sharedlog.LSN{9, 4, 7} {
		g := c.groups[i].Group
		_, err := store.Begin(t.Context(), g, 1)
		require.NoError(t, err)
		require.NoError(t, store.Write(t.Context(), []checkpoint.Write{{Group: g, Token: 1, To: to}}))
	}
	f, err := checkpoint.Follow(t.Context(), c.log, store, c.sources(1), every)
	require.NoError(t, err)
	require.EqualValues(t, 4, f.At())
	require.NoError(t, f.Close())
}
