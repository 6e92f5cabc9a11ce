package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// bash runs a command line in the module's root, with no standard input.
func bash(t *testing.T, line string, args ...string) (out string, ok bool) {
	t.Helper()
	cmd := exec.Command("bash", append([]string{"-c", line, "bash"}, args...)...)
	cmd.Dir = root
	b, err := cmd.CombinedOutput()
	if err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError), "bash itself")
	}
	return string(b), err == nil
}

func TestSmokeFindsTheBlocks(t *testing.T) {
	out, ok := bash(t, "scripts/smoke.sh --list internal/house/testdata/readme.md")
	require.True(t, ok, out)
	require.Equal(t, `# internal/house/testdata/readme.md, line 3
echo first
# internal/house/testdata/readme.md, line 25
echo second, \
  in two lines
`, out)

	out, ok = bash(t, "scripts/smoke.sh internal/house/testdata/readme.md")
	require.True(t, ok, out)
	require.Contains(t, out, "second, in two lines\n")

	for name, c := range map[string]struct{ text, want string }{
		"nothing to run": {"# none\n```go\n```\n", "has no ```sh block to run"},
		"open":           {"```sh\necho x\n", "cannot be told apart"},
		"fails":          {"```sh\nfalse\necho on\n```\n", "line 1: exit code 1"},
		"says nothing":   {"```sh\ntrue\n```\n", "it said nothing at all"},
		"reads":          {"```sh\nread x\n```\n", "line 1: exit code 1"},
	} {
		file := filepath.Join(t.TempDir(), "README.md")
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o644))
		out, ok = bash(t, `scripts/smoke.sh "$1"`, file)
		require.False(t, ok, "%s: %s", name, out)
		require.Contains(t, out, c.want, name)
	}
}

func TestCheckHelps(t *testing.T) {
	out, ok := bash(t, "scripts/check.sh --help")
	require.True(t, ok, out)
	require.Contains(t, out, "With --quick, ")
	require.NotContains(t, out, "==>", "a step")
	out, ok = bash(t, "scripts/check.sh --quik")
	require.False(t, ok)
	require.Contains(t, out, "unknown argument --quik: scripts/check.sh [--quick | --help]")
}

// A step that fails stops its script, also if the failing command is not the last one of a
// function.
func TestStepsStop(t *testing.T) {
	const script = `source scripts/lib.sh
build() { false; true; }
step one true
step two build
echo went on`
	file := filepath.Join(t.TempDir(), "x.sh")
	require.NoError(t, os.WriteFile(file, []byte(script), 0o644))
	out, ok := bash(t, `bash "$1"`, file)
	require.False(t, ok, out)
	require.Contains(t, out, `error: step "two" failed (exit code 1)`)
	require.NotContains(t, out, "went on")
}
