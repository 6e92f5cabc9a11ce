package vfs

import (
	"errors"
	"path/filepath"
	"sync"
)

// Ballast is a file that only takes up space. When the disk is full it is removed, which makes room
// for the writes that are needed to delete something else.
type Ballast struct {
	fs   FS
	path string

	mu    sync.Mutex
	bytes int64 // wanted size
	size  int64 // present size; 0: the file does not exist
}

// NewBallast returns the ballast at a path. The file may exist already; one with fewer bytes counts
// as none.
func NewBallast(fs FS, path string, bytes int64) *Ballast {
	b := &Ballast{fs: fs, path: path, bytes: bytes}
	if size, err := fs.Stat(path); err == nil && size >= bytes {
		b.size = size
	}
	return b
}

// BallastIn returns the ballast of a directory.
func BallastIn(fs FS, dir string, bytes int64) *Ballast {
	return NewBallast(fs, filepath.Join(dir, "BALLAST"), bytes)
}

// There reports whether the ballast exists and can be dropped.
func (b *Ballast) There() bool { return b.Size() > 0 }

// Size returns the size of the ballast in bytes, or 0 if it does not exist.
func (b *Ballast) Size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size
}

// Make creates the ballast and reports whether it exists.
func (b *Ballast) Make() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size > 0 || b.resize(b.bytes)
}

// Resize creates the ballast or changes its size, and reports whether it has the new size. If not,
// it is unchanged.
func (b *Ballast) Resize(bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes = bytes
	return b.size == bytes || b.resize(bytes)
}

// resize writes the missing bytes or truncates the file. It writes instead of preallocating,
// because not every file system can preallocate. Called with mu held.
func (b *Ballast) resize(bytes int64) bool {
	open := b.fs.OpenReadWrite
	if b.size == 0 {
		open = b.fs.Create
	}
	f, err := open(b.path)
	if err != nil {
		return false // the log works without a ballast, too
	}
	var zeros [64 << 10]byte
	for off := b.size; off < bytes && err == nil; off += int64(len(zeros)) {
		_, err = f.WriteAt(zeros[:min(int64(len(zeros)), bytes-off)], off)
	}
	if err == nil && bytes < b.size {
		err = f.Truncate(bytes)
	}
	if err == nil {
		err = f.Sync() // otherwise the space is not really allocated
	}
	if err != nil && b.size > 0 {
		err = errors.Join(err, f.Truncate(b.size))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		b.size = bytes
		return true
	}
	if b.size == 0 {
		_ = b.fs.Remove(b.path)
	}
	return false
}

// Drop removes the ballast to free its space, also a partial one that a killed process has left. It
// returns false if there was none. It is meant for GiveWay.
func (b *Ballast) Drop() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size = 0
	return b.fs.Remove(b.path) == nil
}
