package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/generator"
)

func run(t *testing.T, args ...string) error {
	t.Helper()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(io.Discard)
	return root.ExecuteContext(t.Context())
}

// The file parses back into the generated events. A flag overrides the environment, which overrides
// the config file.
func TestGenerate(t *testing.T) {
	dir := t.TempDir()
	out, cfg := filepath.Join(dir, "events.jsonl"), filepath.Join(dir, "cfg")
	require.NoError(t, os.WriteFile(cfg, []byte("# comment\nevents = 7\nseed = 5\nevent-rate = 500\n"), 0o600))
	t.Setenv("NEXMARK_EVENTS", "3")
	t.Setenv("NEXMARK_SEED", "9")
	require.NoError(t, run(t, "generate", "--config", cfg, "--events", "1000", "--disorder", "1s", "--out", out))
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	g, err := generator.New(generator.Config{Seed: 9, Events: 1000, Rate: 500, Base: generator.DefaultBase, Disorder: 1e9})
	require.NoError(t, err)
	var p event.Parser
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	require.Len(t, lines, 1000)
	for k, line := range lines {
		raw, err := p.Append(nil, line)
		require.NoError(t, err)
		require.Equal(t, g.Append(nil, int64(k)), raw)
	}
}

func TestBadUsageIsToldApart(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "cfg")
	require.NoError(t, os.WriteFile(bad, []byte("evnts = 7\n"), 0o600))
	for _, args := range [][]string{
		{"generate", "--out", "-"},
		{"generate", "--events", "x", "--out", "-"},
		{"generate", "--events", "5", "--event-rate", "0", "--out", "-"},
		{"generate", "--events", "5", "--disorder", "-1s", "--out", "-"},
		{"generate", "--events", "5"},
		{"generate", "--events", "5", "--out", "-", "--config", bad},
	} {
		var usage *usageError
		require.ErrorAs(t, run(t, args...), &usage, "%v", args)
	}
	var usage *usageError
	err := run(t, "generate", "--events", "5", "--out", t.TempDir()+"/no/file")
	require.Error(t, err)
	require.NotErrorAs(t, err, &usage)
}
