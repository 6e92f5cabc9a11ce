package vfs

import (
	"errors"
	"syscall"
)

// GiveWay returns a file system that frees space when the disk is full: when a call fails for want
// of space, it calls free and continues the call from where it stopped. free returns false when it
// has nothing left to free; only then does the call fail. free is called concurrently and must not
// write through the result.
//
// A Sync that fails for want of space is not repeated: it is unknown which writes it has dropped.
func GiveWay(fs FS, free func() bool) FS { return &yieldingFS{fs, free} }

// Full reports whether an error says that the disk, or this user's quota, has no space left.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

type yieldingFS struct {
	FS
	free func() bool
}

type yieldingFile struct {
	File
	free func() bool
}

func (y *yieldingFS) open(open func(string) (File, error), path string) (File, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	return &yieldingFile{f, y.free}, nil
}

func (y *yieldingFS) Create(path string) (File, error) {
	f, err := y.open(y.FS.Create, path)
	for Full(err) && y.free() {
		f, err = y.open(y.FS.Create, path)
	}
	return f, err
}

func (y *yieldingFS) OpenReadWrite(path string) (File, error) {
	return y.open(y.FS.OpenReadWrite, path)
}

func (f *yieldingFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	for Full(err) && f.free() {
		var more int
		more, err = f.File.WriteAt(p[n:], off+int64(n))
		n += more
	}
	return n, err
}

func (f *yieldingFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	n, err := f.File.WriteVAt(bufs, off)
	for Full(err) && f.free() {
		var more int
		more, err = f.File.WriteVAt(behind(bufs, n), off+int64(n))
		n += more
	}
	return n, err
}

// behind returns what follows the first n bytes of the buffers. It does not change them.
func behind(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n == 0 || len(bufs) == 0 {
		return bufs
	}
	rest := append([][]byte(nil), bufs...)
	rest[0] = rest[0][n:]
	return rest
}
