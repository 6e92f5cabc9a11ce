package repair

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage/server/fetch"
	"tailrace.dev/tailrace/storage/server/table"
)

// A peer that is damaged itself, or buggy, may send rows that do not follow one another: none of
// them becomes part of the segment.
func TestMendedWithoutAHole(t *testing.T) {
	for _, row := range []wire.Fetched{
		{Kind: wire.FetchedTrimmed, From: 6, To: 8},
		{Kind: wire.FetchedTrimmed, From: 4, To: 8},
		{Kind: wire.FetchedTrimmed, From: 5, To: 11},
		{Kind: wire.FetchedGroup, From: 6, To: 8},
	} {
		w := &rewriting{from: 0, at: 5, to: 10}
		require.ErrorIs(t, w.take(&row), sharedlog.ErrCorrupt, "%v", row)
		require.EqualValues(t, 5, w.at)
	}
	w := &rewriting{from: 0, at: 5, to: 10}
	require.NoError(t, w.take(&wire.Fetched{Kind: wire.FetchedTrimmed, From: 5, To: 10}))
	require.EqualValues(t, 10, w.at)
}

// A segment whose trimmed groups were left out replaces the damaged one only when all cursors of the
// node know the trims: otherwise they would pass the missing records without an error.
func TestTrimsAreKnownBeforeTheCommit(t *testing.T) {
	var tab table.Table
	tab.Init(&logpb.Snapshot{Index: 1, Tail: 50})
	tab.Announce()
	tab.Apply(&logpb.Event{Index: 2, Place: 50, What: &logpb.Event_Trim{Trim: &logpb.TrimPoint{Tag: "x", Before: 20}}})
	explained := make(chan bool, 1)
	go func() { explained <- (&rewriting{opt: &Options{Table: &tab}, index: 2}).explained(t.Context()) }()
	require.Never(t, func() bool { return len(explained) > 0 }, fetch.ShortPause, fetch.ShortPause/10, "cursors do not know of the trim")
	tab.Announce()
	require.True(t, <-explained)
}
