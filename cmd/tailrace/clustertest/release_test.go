package clustertest

import (
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/build"
)

// The programs of a release are static, and report their build.
func TestRelease(t *testing.T) {
	archives, err := filepath.Glob(filepath.Join(dist, "tailrace-*-linux-"+runtime.GOARCH+".tar.gz"))
	require.NoError(t, err)
	require.Len(t, archives, 1)
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(archives[0]), "tailrace-"), "-linux-"+runtime.GOARCH+".tar.gz")
	dir := t.TempDir()
	out, err := exec.Command("tar", "-xzf", archives[0], "--strip-components=1", "-C", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
	require.NoError(t, err)
	for _, program := range []string{"tailrace", "nexmark"} {
		path := filepath.Join(dir, program)
		out, err := exec.Command(path, "version", "--json").Output()
		require.NoError(t, err)
		var i build.Info
		require.NoError(t, json.Unmarshal(out, &i))
		require.Equal(t, version, i.Version)
		require.Equal(t, strings.TrimSpace(string(commit)), i.Commit)
		require.Equal(t, strings.HasSuffix(version, "-dirty"), i.Modified)
		require.NotEmpty(t, i.Time)
		out, err = exec.Command(path, "version").Output()
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(out), program+" "+version+", commit "), string(out))
		binary, err := elf.Open(path)
		require.NoError(t, err)
		for _, p := range binary.Progs {
			require.NotEqual(t, elf.PT_INTERP, p.Type, "%s wants a dynamic linker", program)
		}
		require.NoError(t, binary.Close())
	}
}

// Two builds of one commit are equal, wherever the clone is.
func TestReleaseIsReproducible(t *testing.T) {
	soak(t)
	sums := map[string]bool{}
	for range 2 {
		clone := t.TempDir()
		out, err := exec.Command("git", "clone", "-q", "../../..", clone).CombinedOutput()
		require.NoError(t, err, "%s", out)
		out, err = exec.Command(filepath.Join(clone, "scripts/release.sh")).CombinedOutput()
		require.NoError(t, err, "%s", out)
		list, err := os.ReadFile(filepath.Join(clone, "dist/SHA256SUMS"))
		require.NoError(t, err)
		sums[string(list)] = true
	}
	require.Len(t, sums, 1, "%v", sums)
	for sum := range sums {
		require.Contains(t, sum, "-linux-amd64.tar.gz\n")
		require.Contains(t, sum, "-linux-arm64.tar.gz\n")
	}
}
