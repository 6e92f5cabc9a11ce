package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A word may be printed once per commit that changed its count; its last line is the answer.
func TestWordcount(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(out)
	require.NoError(t, err)
	args, stdout := os.Args, os.Stdout
	os.Args, os.Stdout = []string{"wordcount", "to", "be", "or", "not", "to", "be"}, f
	main()
	os.Args, os.Stdout = args, stdout
	require.NoError(t, f.Close())

	text, err := os.ReadFile(out)
	require.NoError(t, err)
	counts := map[string]string{}
	for l := range strings.Lines(string(text)) {
		word, n, _ := strings.Cut(strings.TrimSpace(l), " ")
		counts[word] = n
	}
	require.Equal(t, map[string]string{"to": "2", "be": "2", "or": "1", "not": "1"}, counts)
}
