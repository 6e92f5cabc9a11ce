package fakedisk_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/sim/fakedisk"
	"tailrace.dev/tailrace/internal/vfs"
)

func newDisk() *fakedisk.Disk {
	return fakedisk.New(fakedisk.Settings{Rand: rand.New(rand.NewPCG(1, 2))})
}

func write(t *testing.T, fs vfs.FS, path, text string) vfs.File {
	require.NoError(t, fs.MkdirAll("d"))
	f, err := fs.Create(path)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte(text), 0)
	require.NoError(t, err)
	return f
}

// A killed process has no further effect; its locks are released and what it wrote remains. A power
// cut leaves what was synced.
func TestKillAndPowerCut(t *testing.T) {
	d := newDisk()
	old := d.Open()
	f := write(t, old, "d/synced", "synced")
	require.NoError(t, f.Sync())
	require.NoError(t, old.SyncDir("d"))
	g := write(t, old, "d/written", "written")
	_, err := old.Lock("d/LOCK")
	require.NoError(t, err)
	next := d.Open()
	_, err = next.Lock("d/LOCK")
	require.ErrorIs(t, err, vfs.ErrLocked)
	old.Kill()
	_, err = g.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, fakedisk.ErrKilled)
	require.ErrorIs(t, g.Sync(), fakedisk.ErrKilled)
	require.ErrorIs(t, old.Remove("d/written"), fakedisk.ErrKilled)
	_, err = next.Lock("d/LOCK")
	require.NoError(t, err)
	names, err := next.List("d")
	require.NoError(t, err)
	require.Equal(t, []string{"synced", "written"}, names)
	next.Kill()
	lost := false
	for range 20 {
		d := newDisk()
		h := d.Open()
		require.NoError(t, write(t, h, "d/synced", "synced").Sync())
		require.NoError(t, h.SyncDir("d"))
		write(t, h, "d/written", "written")
		h.Kill()
		for range 3 {
			d.PowerCut()
		}
		paths := d.Paths()
		require.Contains(t, paths, "d/synced")
		lost = lost || len(paths) == 1
	}
	require.True(t, lost)
}

// A full disk accepts only calls that free space.
func TestLimit(t *testing.T) {
	d := newDisk()
	h := d.Open()
	f := write(t, h, "d/a", "0123456789")
	d.Limit(4)
	n, err := f.WriteAt([]byte("0123456789"), 5)
	require.True(t, vfs.Full(err), err)
	require.Equal(t, 9, n)
	_, err = h.Create("d/b")
	require.True(t, vfs.Full(err), err)
	require.NoError(t, f.Sync())
	require.NoError(t, h.Remove("d/a"))
	write(t, h, "d/b", "0123456789")
	d.Limit(-1)
	write(t, h, "d/c", "0123456789")
}

// Calls wait while the disk hangs, or until the process is killed.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		h := d.Open()
		f := write(t, h, "d/a", "a")
		d.Hang(true)
		began := time.Now()
		time.AfterFunc(time.Minute, func() { d.Hang(false) })
		require.NoError(t, f.Sync())
		require.Equal(t, time.Minute, time.Since(began))
		d.Hang(true)
		time.AfterFunc(time.Minute, h.Kill)
		require.ErrorIs(t, f.Sync(), fakedisk.ErrKilled)
	})
}

// A flipped bit is one bit of one suitable file.
func TestFlip(t *testing.T) {
	d := newDisk()
	h := d.Open()
	write(t, h, "d/order-1", "0123456789")
	write(t, h, "d/table", "0123456789")
	_, ok, err := d.Flip(fakedisk.Below("d", "segment"))
	require.NoError(t, err)
	require.False(t, ok)
	_, ok, err = d.Flip(fakedisk.Below("d", "order-"))
	require.NoError(t, err)
	require.True(t, ok)
	read := func(path string) string {
		f, err := h.Open(path)
		require.NoError(t, err)
		b := make([]byte, 10)
		_, err = f.ReadAt(b, 0)
		require.NoError(t, err)
		return string(b)
	}
	require.NotEqual(t, "0123456789", read("d/order-1"))
	require.Equal(t, "0123456789", read("d/table"))
}
