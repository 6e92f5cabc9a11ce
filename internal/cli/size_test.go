package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]struct {
		n    int64
		back string
	}{
		"0": {0, "0"}, "7": {7, "7"}, "64MiB": {64 << 20, "64MiB"}, "2G": {2 << 30, "2GiB"}, "1024KiB": {1 << 20, "1MiB"}, "1048577": {1<<20 + 1, "1048577"},
	} {
		var s Size
		require.NoError(t, s.Set(text))
		require.Equal(t, want.n, int64(s))
		require.Equal(t, want.back, s.String())
	}
	for _, bad := range []string{"", "x", "-1", "1TB", "1.5GiB", "9223372036854775807GiB", "MiB"} {
		var s Size
		require.Error(t, s.Set(bad), bad)
	}
}

// A reserve that is not set means the default, and 0 means none.
func TestReserve(t *testing.T) {
	var r Reserve
	require.Equal(t, "1GiB", r.String())
	require.Error(t, r.Set("x"))
	require.NoError(t, r.Set("2GiB"))
	require.EqualValues(t, 2<<30, r)
	require.Equal(t, "2GiB", r.String())
	require.NoError(t, r.Set("0"))
	require.EqualValues(t, -1, r)
	require.Equal(t, "0", r.String())
}
