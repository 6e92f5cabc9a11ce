package embedded_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// The process's memory changes a record that was appended: readers get an error that names
// it, and after a restart what is on the disk.
func TestRecordChangedInMemory(t *testing.T) {
	dir := t.TempDir()
	l, err := embedded.Open(dir, embedded.Options{Logger: quiet})
	require.NoError(t, err)
	w := sharedlog.NewWriter(l, "w", sharedlog.Condition{})
	data := []byte("second")
	for _, d := range [][]byte{[]byte("first"), data} {
		_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: d}).Wait(t.Context())
		require.NoError(t, err)
	}
	read := func() (all []string, err error) {
		r, err := l.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, From: 2})
		require.NoError(t, err)
		defer r.Close()
		b, err := r.Next(t.Context())
		for _, e := range b.Entries {
			all = append(all, string(e.Data))
		}
		return all, err
	}
	all, err := read()
	require.NoError(t, err)
	require.Equal(t, []string{"second"}, all)

	data[0] ^= 1
	_, err = read()
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	require.ErrorContains(t, err, "record 2")
	_, _, err = l.Last(t.Context(), "x", 3)
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	e, ok, err := l.Last(t.Context(), "x", 2)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "first", string(e.Data))

	require.NoError(t, l.Close())
	l, err = embedded.Open(dir, embedded.Options{Logger: quiet})
	require.NoError(t, err)
	defer l.Close()
	all, err = read()
	require.NoError(t, err)
	require.Equal(t, []string{"second"}, all)
}
