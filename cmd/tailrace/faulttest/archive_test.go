package faulttest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// Records are exported from an embedded log into files, and imported into a cluster and into
// another embedded log, each time with a SIGKILL in the middle; an export from there has the same
// files, byte by byte.
func TestExportAndImport(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "from")
	log, err := embedded.Open(from, embedded.Options{Fsync: embedded.FsyncNever})
	require.NoError(t, err)
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	const groups = 30_000
	var last *sharedlog.Pending
	for i := range groups {
		tag := sharedlog.Tag(fmt.Sprint("t", i%7))
		last = w.Append(
			sharedlog.Record{Tags: []sharedlog.Tag{"all", tag}, Data: fmt.Append(nil, strings.Repeat("x", i%900), i)},
			sharedlog.Record{Tags: []sharedlog.Tag{"other"}},
			sharedlog.Record{Tags: []sharedlog.Tag{tag}, Data: fmt.Append(nil, i)},
		)
	}
	_, err = last.Wait(t.Context())
	require.NoError(t, err)
	require.NoError(t, log.Close())
	c := proctest.Start(t, binaries, 3)
	into := append([]string{"--log", strings.Join(c.Sequencers, ",")}, c.Flags()...)
	command := func(args ...string) *exec.Cmd {
		return proctest.Command(t, binaries.Tailrace, append([]string{"log"}, args...)...)
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := command(args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	tags := []string{"--tag", "all", "--tag", "t1", "--tag", "t2", "--file-size", "4MiB"}
	export := func(name string, from ...string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		run(append(append([]string{"export", path}, tags...), from...)...)
		return path
	}
	first := export("first", "--data", from)

	l := c.Open()
	killed := func(args ...string) { // in the middle of an import
		cmd := command(append([]string{"import", first}, args...)...)
		out := new(bytes.Buffer)
		cmd.Stdout = out
		require.NoError(t, cmd.Start())
		if args[0] == "--log" {
			require.Eventually(t, func() bool {
				tail, err := l.Tail(t.Context())
				return err == nil && tail > groups/10
			}, patience, time.Millisecond)
		} else {
			require.Eventually(t, func() bool { return size(filepath.Join(dir, "to")) > 3<<20 }, patience, time.Millisecond)
		}
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		require.Empty(t, out.String(), "it was not done yet")
	}
	killed(into...)
	out := run(append([]string{"import", first}, into...)...)
	require.Contains(t, out, "continued an import that was interrupted behind ")
	same(t, first, export("second", into...))
	require.Contains(t, run(append([]string{"import", first}, into...)...), "nothing was done")
	same(t, first, export("again", into...))

	to := []string{"--data", filepath.Join(dir, "to")}
	killed(to...)
	run(append([]string{"import", first}, to...)...)
	same(t, first, export("third", to...))

	// The error names the damaged file, and nothing of it is imported.
	file := filepath.Join(first, "records-00000002")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	b[len(b)/2] ^= 1
	require.NoError(t, os.WriteFile(file, b, 0o644))
	fresh := filepath.Join(dir, "fresh")
	text, err := command("import", first, "--data", fresh).CombinedOutput()
	require.Error(t, err)
	require.Regexp(t, `corrupt: .*/records-00000002, offset \d+: `, string(text))
	require.NoDirExists(t, fresh)
}

// size returns the number of bytes in the files below a directory.
func size(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil {
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() && strings.HasSuffix(path, ".seg") {
				total += info.Size()
			}
		}
		return nil
	})
	return total
}

// same checks that two archives have the same files of records.
func same(t *testing.T, a, b string) {
	t.Helper()
	files, err := filepath.Glob(a + "/records-*")
	require.NoError(t, err)
	others, err := filepath.Glob(b + "/records-*")
	require.NoError(t, err)
	require.Greater(t, len(files), 1)
	require.Len(t, others, len(files))
	for i := range files {
		x, err := os.ReadFile(files[i])
		require.NoError(t, err)
		y, err := os.ReadFile(others[i])
		require.NoError(t, err)
		require.True(t, bytes.Equal(x, y), "%s and %s differ", files[i], others[i])
	}
}
