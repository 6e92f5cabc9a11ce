package vfs

import (
	"errors"
	"path/filepath"
	"sync"
)

// Ballast is a file of no use but its size: when the disk is full it goes, and what must be
// written then, so that something can be deleted, finds room.
type Ballast struct {
	fs   FS
	path string

	mu    sync.Mutex
	bytes int64 // how large it is to be
	size  int64 // how large it is; 0: it is not there
}

// NewBallast returns the ballast at a path, which may be there already; one of fewer bytes
// counts as none.
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

// There reports whether the ballast is there to be dropped.
func (b *Ballast) There() bool { return b.Size() > 0 }

// Size returns how large the ballast is, 0 if it is not there.
func (b *Ballast) Size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size
}

// Make puts the ballast there, and reports whether it is.
func (b *Ballast) Make() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size > 0 || b.resize(b.bytes)
}

// Resize makes the ballast, or changes its size, and reports whether it has the new one. If
// not, it is as it was.
func (b *Ballast) Resize(bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes = bytes
	return b.size == bytes || b.resize(bytes)
}

// resize writes what is missing, or cuts off what is too much. It is written, not
// preallocated: not every file system has that. mu is held.
func (b *Ballast) resize(bytes int64) bool {
	open := b.fs.OpenReadWrite
	if b.size == 0 {
		open = b.fs.Create
	}
	f, err := open(b.path)
	if err != nil {
		return false // without it things are as they would be anyway
	}
	var zeros [64 << 10]byte
	for off := b.size; off < bytes && err == nil; off += int64(len(zeros)) {
		_, err = f.WriteAt(zeros[:min(int64(len(zeros)), bytes-off)], off)
	}
	if err == nil && bytes < b.size {
		err = f.Truncate(bytes)
	}
	if err == nil {
		err = f.Sync() // or the room is only promised
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

// Drop gives the ballast's room to whoever needs it now, also of one that was being made when
// a process ended; false: there was none. It is what GiveWay calls.
func (b *Ballast) Drop() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size = 0
	return b.fs.Remove(b.path) == nil
}
