package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks"
)

// planned runs nexmark plan and returns the job that it describes.
func planned(t *testing.T, args ...string) *tasks.Spec {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plan")
	out, err := os.Create(path)
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = out
	defer func() { os.Stdout = stdout }()
	require.NoError(t, run(t, append([]string{"plan", "--query", "1", "--events", "10", "--output", path + "-rows"}, args...)...))
	require.NoError(t, out.Close())
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	spec := new(tasks.Spec)
	require.NoError(t, json.Unmarshal(b, spec))
	return spec
}

// --on-error has the same name in the environment and in a config file. A flag overrides the
// environment, which overrides the file, and an invalid value is a usage error wherever it comes
// from.
func TestOnError(t *testing.T) {
	file := func(value string) string {
		path := filepath.Join(t.TempDir(), "cfg")
		require.NoError(t, os.WriteFile(path, []byte("on-error = "+value+"\n"), 0o600))
		return path
	}
	require.Contains(t, []string{"", tasks.OnErrorFail}, planned(t).OnError)
	require.Equal(t, tasks.OnErrorDeadLetter, planned(t, "--config", file("dead-letter")).OnError)
	var usage *usageError
	err := run(t, "plan", "--query", "1", "--events", "10", "--output", "x", "--config", file("ignore"))
	require.ErrorAs(t, err, &usage)
	require.ErrorContains(t, err, "dead-letter")

	t.Setenv("NEXMARK_ON_ERROR", "skip")
	require.Equal(t, tasks.OnErrorSkip, planned(t, "--config", file("dead-letter")).OnError)
	require.Equal(t, tasks.OnErrorDeadLetter, planned(t, "--on-error", "dead-letter").OnError)
	t.Setenv("NEXMARK_ON_ERROR", "ignore")
	err = run(t, "plan", "--query", "1", "--events", "10", "--output", "x")
	require.ErrorAs(t, err, &usage)
	require.ErrorContains(t, err, "dead-letter")
}
