package tagindex

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ballastSize is more than one flush of the catalogue needs (memTable).
const ballastSize = 2 << 20

// ballast is a file of no use but its size: when the disk is full it goes, and
// pebble, which does not survive that its list of files cannot be written, has
// room for the flush that it is at. Segments are not closed for long on a full
// disk, so there is not much more to come.
type ballast struct {
	fs   vfs.FS
	path string

	mu   sync.Mutex
	made bool // or not wanted
}

func newBallast(fs vfs.FS, dir string) *ballast {
	return &ballast{fs: fs, path: fs.PathJoin(dir, "BALLAST")}
}

// make puts the file there, if there is room for it.
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
		return // without it things are as they would be anyway
	}
	// Written, not preallocated: not every file system has that.
	_, err = f.Write(make([]byte, ballastSize))
	if e := f.Close(); err == nil {
		err = e
	}
	if b.made = err == nil; !b.made {
		_ = b.fs.Remove(b.path)
	}
}

// drop gives the space to whoever needs it now.
func (b *ballast) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made = false
	_ = b.fs.Remove(b.path) // if it was not there, that is all there was to give
}
