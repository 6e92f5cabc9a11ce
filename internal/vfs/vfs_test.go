package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/internal/vfs"
)

func content(t require.TestingT, fsys vfs.FS, path string) []byte {
	f, err := fsys.Open(path)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err != io.EOF {
		require.NoError(t, err)
	}
	require.Equal(t, len(b), n)
	require.NoError(t, f.Close())
	return b
}

func write(t require.TestingT, fsys vfs.FS, path string, b string) vfs.File {
	f, err := fsys.Create(path)
	require.NoError(t, err)
	n, err := f.WriteAt([]byte(b), 0)
	require.NoError(t, err)
	require.Equal(t, len(b), n)
	return f
}

// TestMemIsLikeOS runs random calls on both and compares every answer.
func TestMemIsLikeOS(t *testing.T) {
	root := t.TempDir()
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		dir := filepath.Join(root, string(rune('a'+round%26)), rapid.StringMatching(`[a-z]{8}`).Draw(t, "dir"))
		both := []vfs.FS{vfs.OS, vfs.NewMem()}
		for _, f := range both {
			require.NoError(t, f.MkdirAll(dir))
		}
		before, err := both[0].List(dir)
		require.NoError(t, err)
		for _, name := range before { // a name may be drawn twice
			require.NoError(t, vfs.OS.Remove(filepath.Join(dir, name)))
		}
		name := rapid.SampledFrom([]string{"x", "y", "z"})
		for range rapid.IntRange(1, 30).Draw(t, "calls") {
			path := filepath.Join(dir, name.Draw(t, "name"))
			other := filepath.Join(dir, name.Draw(t, "other"))
			call := rapid.IntRange(0, 6).Draw(t, "call")
			off := rapid.Int64Range(0, 2000).Draw(t, "off")
			data := bytes.Repeat([]byte{byte(off)}, rapid.IntRange(0, 1500).Draw(t, "len"))
			cut := rapid.IntRange(0, len(data)).Draw(t, "cut")
			var missing [2]bool
			for i, f := range both {
				var err error
				switch call {
				case 0:
					var file vfs.File
					if file, err = f.Create(path); err == nil {
						require.NoError(t, file.Close())
					}
				case 1:
					err = f.Remove(path)
				case 2:
					err = f.Rename(path, other)
				case 3, 4:
					var file vfs.File
					if file, err = f.OpenReadWrite(path); err == nil {
						n, werr := file.WriteVAt([][]byte{data[:cut], nil, data[cut:]}, off)
						require.NoError(t, werr)
						require.Equal(t, len(data), n)
						require.NoError(t, file.Sync())
						require.NoError(t, file.Close())
					}
				case 5:
					var file vfs.File
					if file, err = f.OpenReadWrite(path); err == nil {
						require.NoError(t, file.Truncate(off))
						require.NoError(t, file.Close())
					}
				case 6:
					_, err = f.Stat(path)
				}
				missing[i] = errors.Is(err, fs.ErrNotExist)
				if !missing[i] {
					require.NoError(t, err)
				}
			}
			require.Equal(t, missing[0], missing[1])
		}
		names, err := both[0].List(dir)
		require.NoError(t, err)
		memNames, err := both[1].List(dir)
		require.NoError(t, err)
		require.Equal(t, names, memNames)
		for _, n := range names {
			require.Equal(t, content(t, both[0], filepath.Join(dir, n)), content(t, both[1], filepath.Join(dir, n)))
		}
	})
}

func TestWriteVAtLoopsOverIovMax(t *testing.T) {
	f, err := vfs.OS.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	var bufs [][]byte
	var want []byte
	for i := range 5000 {
		b := bytes.Repeat([]byte{byte(i)}, i%7) // some are empty
		bufs, want = append(bufs, b), append(want, b...)
	}
	n, err := f.WriteVAt(bufs, 3)
	require.NoError(t, err)
	require.Equal(t, len(want), n)
	require.Equal(t, append([]byte{0, 0, 0}, want...), content(t, vfs.OS, f.(interface{ Name() string }).Name()))
	require.NoError(t, f.Close())
}

func TestWriteVAtInPieces(t *testing.T) {
	f, err := vfs.OS.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	var bufs [][]byte
	var want []byte
	const piece = 128 << 10
	for i, size := range []int{1, piece, 0, piece - 1, 1, piece + 1, 3 * piece, 7, 5*piece + 9, piece / 2, piece / 2, piece / 2, 0, 2*piece - 1, 1} {
		b := make([]byte, size)
		for k := range b {
			b[k] = byte(i + k*7 + k>>9)
		}
		bufs, want = append(bufs, b), append(want, b...)
	}
	n, err := f.WriteVAt(bufs, 5)
	require.NoError(t, err)
	require.Equal(t, len(want), n)
	require.True(t, bytes.Equal(append(make([]byte, 5), want...), content(t, vfs.OS, f.(interface{ Name() string }).Name())))
	require.NoError(t, f.Close())
}

func TestLock(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"os": vfs.OS, "mem": vfs.NewMem()} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "LOCK")
			l, err := fsys.Lock(path)
			require.NoError(t, err)
			_, err = fsys.Lock(path)
			require.ErrorIs(t, err, vfs.ErrLocked)
			require.NoError(t, l.Close())
			l, err = fsys.Lock(path)
			require.NoError(t, err)
			require.NoError(t, l.Close())
		})
	}
}

func TestRenameStaysInItsDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, fsys := range []vfs.FS{vfs.OS, vfs.NewMem()} {
		require.NoError(t, fsys.MkdirAll(filepath.Join(dir, "d")))
		require.NoError(t, write(t, fsys, filepath.Join(dir, "f"), "x").Close())
		require.ErrorContains(t, fsys.Rename(filepath.Join(dir, "f"), filepath.Join(dir, "d", "f")), "same directory")
	}
}

// TestPowerCut draws many power cuts of one history: what was synced is always kept, and everything
// that may be lost or kept is lost in some cuts and kept in others, independently.
func TestPowerCut(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("d"))
	f := write(t, m, "d/f", "synced")
	require.NoError(t, f.Sync())
	require.NoError(t, write(t, m, "d/old", "r").Sync())
	require.NoError(t, write(t, m, "d/gone", "g").Sync())
	require.NoError(t, m.SyncDir("d"))
	// Nothing after this is durable.
	big := bytes.Repeat([]byte{'b'}, 4*512)
	_, err := f.WriteAt(big, 512)
	require.NoError(t, err)
	require.NoError(t, m.Rename("d/old", "d/new"))
	require.NoError(t, m.Remove("d/gone"))
	require.NoError(t, write(t, m, "d/unsynced name", "x").Sync())
	seen := map[string]int{}
	const cuts = 400
	for seed := range uint64(cuts) {
		c := m.CrashClone(rand.New(rand.NewPCG(seed, 1)))
		b := content(t, c, "d/f")
		require.Equal(t, "synced", string(b[:6]))
		for i := 1; i < 5; i++ {
			switch piece := b[min(i*512, len(b)):min((i+1)*512, len(b))]; {
			case bytes.Equal(piece, big[:512]):
				seen["piece kept"]++
			default:
				require.Empty(t, bytes.Trim(piece, "\x00"), "a sector is there or not")
				seen["piece lost"]++
			}
		}
		if len(b) > 6 && bytes.IndexByte(b[512:], 'b') > 0 {
			seen["a later piece without the first"]++
		}
		_, errOld := c.Stat("d/old")
		_, errNew := c.Stat("d/new")
		require.NotEqual(t, errOld == nil, errNew == nil, "a rename is one step")
		for _, name := range []string{"new", "gone", "unsynced name"} {
			if _, err := c.Stat("d/" + name); err == nil {
				seen[name+" there"]++
			} else {
				seen[name+" not there"]++
			}
		}
	}
	for _, what := range []string{
		"piece kept", "piece lost", "a later piece without the first", "new there", "new not there",
		"gone there", "gone not there", "unsynced name there", "unsynced name not there",
	} {
		require.Greater(t, seen[what], cuts/20, what)
	}
	// What the cut left is durable, and the original continues unchanged.
	c := m.CrashClone(rand.New(rand.NewPCG(3, 1)))
	names, err := c.List("d")
	require.NoError(t, err)
	again, err := c.CrashClone(rand.New(rand.NewPCG(4, 1))).List("d")
	require.NoError(t, err)
	require.Equal(t, names, again)
	k := m.KillClone()
	require.Equal(t, big, content(t, k, "d/f")[512:])
	_, err = k.Stat("d/gone")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("d"))
	for seed := range uint64(50) {
		c := m.CrashClone(rand.New(rand.NewPCG(seed, 2)))
		require.Equal(t, content(t, m, "d/f"), content(t, c, "d/f"))
		names, err := c.List("d")
		require.NoError(t, err)
		require.Equal(t, []string{"f", "new", "unsynced name"}, names)
	}
}

func TestRemovedFileStaysReadable(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("d"))
	f := write(t, m, "d/f", "abc")
	require.NoError(t, m.Remove("d/f"))
	write(t, m, "d/f", "xyz")
	b := make([]byte, 3)
	_, err := f.ReadAt(b, 0)
	require.NoError(t, err)
	require.Equal(t, "abc", string(b))
}

func TestInject(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("d"))
	isWrite := func(op vfs.Op) bool { return op.Kind == vfs.OpWrite && op.Path == "d/f" }
	fsys := vfs.Inject(m, vfs.FailAt(2, isWrite, &vfs.ShortWrite{N: 3, Err: syscall.ENOSPC}))
	f := write(t, fsys, "d/f", "first.")
	n, err := f.WriteVAt([][]byte{[]byte("se"), []byte("cond")}, 6)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 3, n)
	require.Equal(t, "first.sec", string(content(t, m, "d/f")))
	_, err = f.WriteVAt([][]byte{[]byte("se"), []byte("cond")}, 6)
	require.NoError(t, err)
	require.Equal(t, "first.second", string(content(t, m, "d/f")))

	fsys = vfs.Inject(m, vfs.FailAt(1, func(op vfs.Op) bool { return op.Kind == vfs.OpSync }, syscall.EIO))
	f, err = fsys.OpenReadWrite("d/f")
	require.NoError(t, err)
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	require.NoError(t, f.Sync())
}

// A write on a full disk continues from where it stopped as long as there is something to free, and
// then fails as it would have otherwise.
func TestGiveWay(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("d"))
	room, spare := 0, 0 // bytes, and files of three bytes
	tight := vfs.Inject(m, func(op vfs.Op) error {
		switch {
		case op.Kind == vfs.OpCreate && room < 1:
			return syscall.ENOSPC
		case op.Kind == vfs.OpWrite && op.Len > room:
			n := room
			room = 0
			return &vfs.ShortWrite{N: n, Err: syscall.EDQUOT}
		case op.Kind == vfs.OpWrite:
			room -= op.Len
		}
		return nil
	})
	fsys := vfs.GiveWay(tight, func() bool {
		if spare == 0 {
			return false
		}
		spare--
		room += 3
		return true
	})
	_, err := fsys.Create("d/f")
	require.ErrorIs(t, err, syscall.ENOSPC)
	spare = 1
	f, err := fsys.Create("d/f")
	require.NoError(t, err)
	spare = 2
	bufs := [][]byte{[]byte("ab"), []byte("cdef"), nil, []byte("gh"), []byte("i")}
	n, err := f.WriteVAt(bufs, 0)
	require.NoError(t, err)
	require.Equal(t, 9, n)
	require.Equal(t, "abcdefghi", string(content(t, m, "d/f")))
	require.Equal(t, "cdef", string(bufs[1]), "the caller's buffers are left as they are")
	spare = 1
	n, err = f.WriteAt([]byte("jklmn"), 9)
	require.ErrorIs(t, err, syscall.EDQUOT)
	require.Equal(t, 3, n)
	require.Equal(t, "abcdefghijkl", string(content(t, m, "d/f")))
	spare = 1
	n, err = f.WriteAt([]byte("mn"), 12)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NoError(t, f.Close())

	fsys = vfs.GiveWay(vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite || op.Kind == vfs.OpSync {
			return syscall.EIO
		}
		return nil
	}), func() bool { t.Error("not for other errors"); return false })
	f, err = fsys.OpenReadWrite("d/f")
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	require.NoError(t, f.Close())
}

// A ballast is dropped for what must be written on a full disk, and created again when there is
// room.
func TestBallast(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("d"))
	b := vfs.NewBallast(m, "d/BALLAST", 100_000)
	require.False(t, b.There())
	require.False(t, b.Drop())
	require.True(t, b.Make())
	require.True(t, vfs.NewBallast(m, "d/BALLAST", 100_000).There(), "a later process finds it")
	m.SetCapacity(100_000)
	f, err := vfs.GiveWay(m, b.Drop).Create("d/f")
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, 60_000), 0)
	require.NoError(t, err)
	require.False(t, b.There())
	require.False(t, b.Make(), "there is no room")
	_, err = m.Stat("d/BALLAST")
	require.Error(t, err, "nor is half of it kept")
	_, err = f.WriteAt(make([]byte, 60_000), 60_000)
	require.True(t, vfs.Full(err))
	require.NoError(t, f.Close())
	require.NoError(t, m.Remove("d/f"))
	require.True(t, b.Make())

	size := func() int64 {
		n, err := m.Stat("d/BALLAST")
		require.NoError(t, err)
		require.Equal(t, n, b.Size())
		return n
	}
	m.SetCapacity(150_000)
	require.True(t, b.Resize(140_000))
	require.EqualValues(t, 140_000, size())
	require.False(t, b.Resize(160_000), "there is no room")
	require.EqualValues(t, 140_000, size(), "it is as it was")
	require.True(t, b.Resize(60_000))
	require.EqualValues(t, 60_000, size())
	require.True(t, b.Drop())
	require.False(t, b.Resize(160_000))
	require.False(t, b.There())
	require.True(t, b.Resize(150_000))
	require.EqualValues(t, 150_000, size())
}

// The ballast is as large as what must be written on a full disk.
func TestReserveCovers(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("d"))
	m.SetCapacity(10_000)
	f, err := m.Create("d/f")
	require.NoError(t, err)
	r := vfs.NewReserve(vfs.ReserveOptions{FS: m, Dir: "d", Bytes: -1, Ballast: 1000})
	size := func() int64 {
		n, _ := m.Stat("d/BALLAST")
		return n
	}
	require.True(t, r.Cover(1000))
	require.Zero(t, size(), "there is nothing yet that could be deleted")
	require.True(t, r.Cover(2000))
	require.EqualValues(t, 2000, size())
	free, _ := r.Space()
	require.EqualValues(t, 8000, free, "it has taken room")
	require.True(t, r.Cover(1500))
	r.Look()
	require.EqualValues(t, 2000, size(), "it stays while what is needed moves a little")
	require.True(t, r.Cover(900))
	r.Look()
	require.EqualValues(t, 900, size())

	require.NoError(t, f.Truncate(7000))
	require.False(t, r.Cover(3000), "it would make the disk full")
	require.EqualValues(t, 900, size())
	require.False(t, r.Given(), "there is one")
	require.Empty(t, r.Refusal())
	require.True(t, r.Cover(900), "less is needed again")
	require.False(t, r.Cover(3000))
	require.NoError(t, f.Truncate(6000))
	r.Look()
	require.EqualValues(t, 3000, size(), "there is room by now")
	require.True(t, r.Cover(3000))

	require.True(t, r.Give())
	require.NoError(t, f.Truncate(9000))
	require.False(t, r.Cover(900), "nor is there one")
	require.True(t, r.Given())
	require.NoError(t, f.Truncate(5000))
	require.True(t, r.Cover(2000))
	require.False(t, r.Given())
	require.EqualValues(t, 2000, size())
}

// A reserve reports when less is free than required, when appends are refused, and when they are
// accepted again; spare files count as free.
func TestReserve(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("d"))
	f, err := m.Create("d/f")
	require.NoError(t, err)
	spare := false
	o := vfs.ReserveOptions{FS: m, Dir: "d", Bytes: 1000, Ballast: 500, Spare: func() bool {
		if !spare {
			return false
		}
		spare = false
		require.NoError(t, m.Remove("d/spare"))
		return true
	}}
	m.SetCapacity(10_500)
	r := vfs.NewReserve(o)
	_, err = m.Stat("d/BALLAST")
	require.Error(t, err, "there is nothing yet that could be deleted")
	r.Keep()
	_, err = m.Stat("d/BALLAST")
	require.NoError(t, err)
	fill := func(bytes int64) (changed bool) {
		require.NoError(t, f.Truncate(bytes))
		return r.Look()
	}
	require.False(t, fill(9000))
	require.False(t, r.ReadOnly())
	require.Empty(t, r.Refusal())
	require.True(t, fill(9001))
	require.True(t, r.ReadOnly())
	require.Equal(t, "the disk of d has 999 bytes free, and 1000 bytes must stay free: make room on it, or trim the log; appends are accepted again when 1.2 KiB are free", r.Refusal())
	require.False(t, fill(8751), "a quarter more is to be free")
	require.NotEmpty(t, r.Refusal())
	require.True(t, fill(8750))
	require.Empty(t, r.Refusal())

	// Spare files are removed first.
	g, err := m.Create("d/spare")
	require.NoError(t, err)
	require.NoError(t, g.Truncate(1000))
	spare = true
	require.False(t, fill(8500))
	require.False(t, spare)
	require.Empty(t, r.Refusal())

	// Then the ballast is dropped.
	require.True(t, fill(10_000))
	require.True(t, r.Give())
	require.False(t, r.Give(), "there was one only")
	require.True(t, r.Given())
	require.Contains(t, r.Refusal(), "the disk of d is full")
	require.False(t, fill(9999))
	require.True(t, r.Given(), "making it again would make the disk full")
	require.True(t, fill(0))
	require.False(t, r.Given())
	require.Empty(t, r.Refusal())

	// Between two calls of Look it measures after many bytes were written.
	require.NoError(t, f.Truncate(9900))
	r.Wrote(1)
	require.Empty(t, r.Refusal())
	r.Wrote(64 << 10)
	require.NotEmpty(t, r.Refusal())
	require.True(t, r.Look(), "it is told once")
	require.False(t, r.Look())

	// Other nodes can take over before appends are refused, while half of the reserve is free.
	require.True(t, fill(0))
	o.Grace = time.Hour
	r = vfs.NewReserve(o)
	require.True(t, fill(9400))
	require.True(t, r.ReadOnly())
	require.Empty(t, r.Refusal())
	require.False(t, fill(9600))
	require.NotEmpty(t, r.Refusal())

	o.Bytes = -1
	r = vfs.NewReserve(o)
	require.Empty(t, r.Refusal())
	m.SetCapacity(0)
	o.Bytes = 0
	r = vfs.NewReserve(o)
	_, bytes := r.Space()
	require.EqualValues(t, vfs.DefaultReserve, bytes)
	m.SetCapacity(100_000)
	r.Look()
	_, bytes = r.Space()
	require.EqualValues(t, 5000, bytes, "a twentieth of the disk at most")
}

// ReadFile returns all of a file; for a file that cannot be read it returns an error and no bytes.
func TestReadFile(t *testing.T) {
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("."))
	_, err := vfs.ReadFile(fsys, "f")
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, want := range [][]byte{{}, []byte("all of it")} {
		f, err := fsys.Create("f")
		require.NoError(t, err)
		_, err = f.WriteAt(want, 0)
		require.NoError(t, errors.Join(err, f.Close()))
		got, err := vfs.ReadFile(fsys, "f")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
