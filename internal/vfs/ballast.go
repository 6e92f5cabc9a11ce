package vfs

import (
	"path/filepath"
	"sync"
)

// Ballast is a file of no use but its size: when the disk is full it goes, and what must be
// written then, so that something can be deleted, finds room.
type Ballast struct {
	fs   FS
	path string
	size int64

	mu   sync.Mutex
	made bool
}

// NewBallast returns the ballast at a path, which may be there already.
func NewBallast(fs FS, path string, bytes int64) *Ballast {
	b := &Ballast{fs: fs, path: path, size: bytes}
	if size, err := fs.Stat(path); err == nil {
		b.made = size >= bytes
	}
	return b
}

// BallastIn returns the ballast of a directory.
func BallastIn(fs FS, dir string, bytes int64) *Ballast {
	return NewBallast(fs, filepath.Join(dir, "BALLAST"), bytes)
}

// There reports whether the ballast is there to be dropped.
func (b *Ballast) There() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made
}

// Make puts the ballast there, and reports whether it is. It is written, not
// preallocated: not every file system has that.
func (b *Ballast) Make() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made {
		return true
	}
	f, err := b.fs.Create(b.path)
	if err != nil {
		return false // without it things are as they would be anyway
	}
	var zeros [64 << 10]byte
	for off := int64(0); off < b.size && err == nil; off += int64(len(zeros)) {
		_, err = f.WriteAt(zeros[:min(int64(len(zeros)), b.size-off)], off)
	}
	if err == nil {
		err = f.Sync() // or the room is only promised
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if b.made = err == nil; !b.made {
		_ = b.fs.Remove(b.path)
	}
	return b.made
}

// Drop gives the ballast's room to whoever needs it now; false: there was none. It is what
// GiveWay calls.
func (b *Ballast) Drop() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	had := b.made
	b.made = false
	return b.fs.Remove(b.path) == nil && had
}
