package naming_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/internal/naming"
)

func TestNames(t *testing.T) {
	names, twice := naming.Names([]naming.Op{
		{"a", "window", ""},
		{"a", "window", "window-2"},
		{"a", "window", ""},
		{"b", "window", ""},
		{"a", "aggregate", ""},
		{"a", "process", "seen"},
		{"a", "process", "seen"},
		{"b", "process", "seen"},
	})
	require.Equal(t, []string{"window", "window-2", "window-3", "window", "aggregate", "seen", "seen", "seen"}, names)
	require.Equal(t, []int{6}, twice)
}
