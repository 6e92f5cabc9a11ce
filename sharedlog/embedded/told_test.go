package embedded_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// A reader below a trim point gets ErrTrimmed even if the records still exist, and a group whose
// condition does not hold is never shown.
func TestReadersAreTold(t *testing.T) {
	log, err := embedded.Open("log", embedded.Options{FS: vfs.NewMem(), Logger: quiet})
	require.NoError(t, err)
	defer log.Close()
	group := func(i int) sharedlog.Record {
		return sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: []byte{byte(i)}}
	}
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	for i := range 10 {
		_, err := w.Append(group(i)).Wait(t.Context())
		require.NoError(t, err)
	}
	_, err = sharedlog.NewWriter(log, "v", sharedlog.Condition{Key: "k", Value: []byte("v")}).Append(group(10)).Wait(t.Context())
	require.ErrorIs(t, err, sharedlog.ErrConditionFailed)
	last, err := w.Append(group(11)).Wait(t.Context())
	require.NoError(t, err)
	open := func(from sharedlog.LSN) sharedlog.Reader {
		r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, From: from})
		require.NoError(t, err)
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	late := open(1)
	var got []byte
	for r, n := open(1), 0; n < 11; {
		b, err := r.Next(t.Context())
		require.NoError(t, err)
		for _, e := range b.Entries {
			got = append(got, e.Data...)
		}
		n += len(b.Entries)
	}
	require.Equal(t, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11}, got)
	require.NoError(t, log.Trim(t.Context(), "x", last))
	_, err = late.Next(t.Context())
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
	b, err := open(last).Next(t.Context())
	require.NoError(t, err)
	require.Len(t, b.Entries, 1)
}
