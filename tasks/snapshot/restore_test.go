package snapshot

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// Load returns the entries and the position of each group, after its token has made older writers
// powerless.
func TestLoad(t *testing.T) {
	store := storetest.NewMem()
	var groups []checkpoint.Group
	for g := range 9 {
		groups = append(groups, source(g, 0).Group)
		if g == 4 {
			continue // the store has nothing of it
		}
		require.NoError(t, store.Write(t.Context(), []checkpoint.Write{{Group: groups[g], To: sharedlog.LSN(10 + g), Entries: []checkpoint.Entry{
			{Key: []byte{0, 'a'}, Value: []byte{byte(g)}}, {Key: []byte{0, 'b'}, Value: []byte{byte(g)}},
		}}}))
	}
	var found []string
	at, err := Load(t.Context(), store, groups, 20, func(i int, entries []checkpoint.Entry) error {
		for _, e := range entries {
			require.Equal(t, byte(i), e.Value[0])
			found = append(found, fmt.Sprint(i, string(e.Key[1:])))
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []sharedlog.LSN{10, 11, 12, 13, 0, 15, 16, 17, 18}, at)
	slices.Sort(found)
	require.Equal(t, []string{"0a", "0b", "1a", "1b", "2a", "2b", "3a", "3b", "5a", "5b", "6a", "6b", "7a", "7b", "8a", "8b"}, found)

	_, err = store.Begin(t.Context(), groups[4], 19)
	require.ErrorIs(t, err, checkpoint.ErrFenced)
	_, err = Load(t.Context(), store, groups, 19, func(int, []checkpoint.Entry) error { return nil })
	require.ErrorIs(t, err, checkpoint.ErrFenced)
	bad := errors.New("bad entry")
	_, err = Load(t.Context(), store, groups, 21, func(int, []checkpoint.Entry) error { return bad })
	require.ErrorIs(t, err, bad)
	store.Down(bad)
	_, err = Load(t.Context(), store, groups, 21, func(int, []checkpoint.Entry) error { return nil })
	require.ErrorIs(t, err, bad)
}

// Replay reads no change log below its own position, where it may be trimmed, and each record once.
func TestReplay(t *testing.T) {
	log := mem.New(mem.Options{})
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	tag := func(g int) sharedlog.Tag { return source(g, 0).Tag }
	var lsns []sharedlog.LSN
	for _, groups := range [][]int{{0}, {1}, {0, 1}, {2}, {0, 2}, {1}} {
		var tags []sharedlog.Tag
		for _, g := range groups {
			tags = append(tags, tag(g))
		}
		lsn, err := w.Append(sharedlog.Record{Tags: tags, Data: []byte("x")}).Wait(t.Context())
		require.NoError(t, err)
		lsns = append(lsns, lsn)
	}
	require.NoError(t, log.Trim(t.Context(), tag(1), lsns[2]))
	require.NoError(t, log.Trim(t.Context(), tag(2), lsns[4]))
	from := []Position{{tag(2), lsns[4]}, {tag(0), 0}, {tag(1), lsns[2]}}
	read := func(until sharedlog.LSN) (got, progress []sharedlog.LSN) {
		err := Replay(t.Context(), log, new(all), from, until, func(e *sharedlog.Entry) error {
			got = append(got, e.LSN)
			return nil
		}, func(at sharedlog.LSN) { progress = append(progress, at) })
		require.NoError(t, err)
		require.True(t, slices.IsSorted(progress))
		return got, progress
	}
	got, progress := read(lsns[5] + 1)
	require.Equal(t, []sharedlog.LSN{lsns[0], lsns[2], lsns[4], lsns[5]}, got)
	require.Equal(t, lsns[5]+1, progress[len(progress)-1])
	got, _ = read(lsns[4])
	require.Equal(t, []sharedlog.LSN{lsns[0], lsns[2]}, got)
	got, _ = read(lsns[0])
	require.Empty(t, got)

	from[2].From = sharedlog.First
	err := Replay(t.Context(), log, new(all), from, lsns[5], func(*sharedlog.Entry) error { return nil }, func(sharedlog.LSN) {})
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
}
