package tagindex

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ballastSize is more than one flush of the catalogue needs (memTable).
const ballastSize = 2 << 20

// ballast is a file that only occupies space. It is removed when the disk is full, so that pebble
// can complete its current flush; pebble does not survive an error when it writes its list of
// files. Little more is written after that, because no segment is closed on a full disk.
type ballast struct {
	fs   vfs.FS
	path string

	mu   sync.Mutex
	made bool // or not wanted
}

func newBallast(fs vfs.FS, dir string) *ballast {
	return &ballast{fs: fs, path: fs.PathJoin(dir, "BALLAST")}
}

// make creates the file, if the disk has space for it.
func (b *ballast) make() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made {
		return
	}
	if info, err := b.fs.Stat(b.path); err == nil && info.Size() == ballastSize {
		b.made = true
		return
	}
	f, err := b.fs.Create(b.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return // the catalogue works without a ballast
	}
	// Write it, since not every file system can preallocate.
	_, err = f.Write(make([]byte, ballastSize))
	if e := f.Close(); err == nil {
		err = e
	}
	if b.made = err == nil; !b.made {
		_ = b.fs.Remove(b.path)
	}
}

// drop removes the file to free its space.
func (b *ballast) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made = false
	_ = b.fs.Remove(b.path) // already gone: nothing left to free
}
