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

// A choice that is not set means the default; 0 means none.
func TestChoice(t *testing.T) {
	c := Choice{Default: "a tenth"}
	require.Equal(t, "a tenth", c.String())
	require.Error(t, (&Choice{}).Set("x"))
	require.NoError(t, c.Set("2GiB"))
	require.EqualValues(t, 2<<30, c.Number)
	require.Equal(t, "2GiB", c.String())
	require.NoError(t, c.Set("0"))
	require.EqualValues(t, -1, c.Number)
	require.Equal(t, "0", c.String())
}
