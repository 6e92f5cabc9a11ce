package segment

import (
	"path/filepath"
	"testing"

	"tailrace.dev/tailrace/internal/vfs"
)

// BenchmarkAppend appends single groups, and compares with the bare calls at the same sizes on a
// pre-zeroed file: the difference is the cost of the log itself.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 128 << 10} {
		for _, sync := range []bool{false, true} {
			mode := map[bool]string{false: "write", true: "fdatasync"}[sync]
			b.Run(sizeName(size)+"/"+mode+"/log", func(b *testing.B) { benchAppend(b, size, sync) })
			b.Run(sizeName(size)+"/"+mode+"/bare", func(b *testing.B) { benchBare(b, size, sync) })
		}
	}
}

func benchAppend(b *testing.B, size int, sync bool) {
	s, err := Open(vfs.OS, b.TempDir(), Options{FirstSize: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	a, err := s.NewAppender(1)
	if err != nil {
		b.Fatal(err)
	}
	g := benchGroup(size)
	frames, locs := []*Frame{new(Frame)}, make([]Location, 1)
	position := uint64(0)
	old := a.Active()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		frames[0].Encode(&g, false)
		if _, err := a.Append(position, frames, locs); err != nil {
			b.Fatal(err)
		}
		position++
		if sync {
			if err := a.Sync(); err != nil {
				b.Fatal(err)
			}
		}
		if locs[0].ID != old { // as a trim does: files are reused
			if err := s.Delete(old); err != nil {
				b.Fatal(err)
			}
			old = locs[0].ID
		}
	}
	if err := a.Close(); err != nil {
		b.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

func benchBare(b *testing.B, size int, sync bool) {
	f, err := vfs.OS.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	const room = 64 << 20
	for off := int64(0); off < room; off += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:], off); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	data := make([]byte, size)
	off := int64(0)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if off+int64(size) > room {
			off = 0
		}
		if _, err := f.WriteAt(data, off); err != nil {
			b.Fatal(err)
		}
		off += int64(size)
		if sync {
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
