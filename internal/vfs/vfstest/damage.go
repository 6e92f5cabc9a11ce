package vfstest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
)

// Read returns the content of a file.
func Read(t testing.TB, fsys vfs.FS, path string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(fsys, path)
	require.NoError(t, err)
	return b
}

// Write makes b the content of a file, durably.
func Write(t testing.TB, fsys vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fsys.Create(path)
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, errors.Join(err, f.Sync(), f.Close()))
}

// Damage draws one of the paths and damages that file: it removes it, truncates it, swaps it with
// another of the paths, appends zeros, or flips one bit, more often near its ends. It returns what
// it did and the paths of the files it changed.
func Damage(t testing.TB, rng *rand.Rand, disk *vfs.Mem, paths []string) (what string, damaged []string) {
	t.Helper()
	path := paths[rng.IntN(len(paths))]
	b := Read(t, disk, path)
	switch rng.IntN(8) {
	case 0:
		require.NoError(t, disk.Remove(path))
		return path + " is missing", []string{path}
	case 1:
		n := rng.IntN(len(b) + 1)
		Write(t, disk, path, b[:n])
		return fmt.Sprintf("%s is cut at %d of %d", path, n, len(b)), []string{path}
	case 2:
		other := paths[rng.IntN(len(paths))]
		Write(t, disk, path, Read(t, disk, other))
		Write(t, disk, other, b)
		return path + " and " + other + " are swapped", []string{path, other}
	case 3:
		n := 1 + rng.IntN(600)
		Write(t, disk, path, append(b, make([]byte, n)...))
		return fmt.Sprintf("%s is longer by %d", path, n), []string{path}
	}
	if len(b) == 0 {
		return "nothing", nil
	}
	off := rng.IntN(len(b))
	if rng.IntN(2) == 0 { // near either end
		off = min(rng.IntN(60), len(b)-1)
		if rng.IntN(2) == 0 {
			off = len(b) - 1 - off
		}
	}
	b[off] ^= 1 << rng.IntN(8)
	Write(t, disk, path, b)
	return fmt.Sprintf("%s, byte %d of %d", path, off, len(b)), []string{path}
}
