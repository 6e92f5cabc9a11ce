package vfs

import (
	"errors"
	"io"
	"sync/atomic"
)

// OpKind is the kind of an Op.
type OpKind uint8

// The kinds of calls that a hook sees.
const (
	OpCreate OpKind = iota
	OpOpen
	OpRemove
	OpRename
	OpList
	OpMkdir
	OpStat
	OpSyncDir
	OpLock
	OpRead
	OpWrite // WriteAt and WriteVAt
	OpSync
	OpTruncate
	OpSize
)

// Op describes a call that is about to be made. Off and Len (bytes) are set for reads, writes and
// (Off) truncates.
type Op struct {
	Kind OpKind
	Path string
	Off  int64
	Len  int
}

// Hook is called before each call. If it returns an error, the call returns that error instead of
// being made; if the error is a *ShortWrite, part of the write is made first. Hooks are called
// concurrently.
type Hook func(Op) error

// ShortWrite, returned by a Hook for an OpWrite, writes the first N bytes and
// then fails with Err.
type ShortWrite struct {
	N   int
	Err error
}

// Error implements error.
func (s *ShortWrite) Error() string { return "short write: " + s.Err.Error() }

// Unwrap returns the error of the write.
func (s *ShortWrite) Unwrap() error { return s.Err }

// FailAt returns a hook that fails only the n-th call (from 1) for which match returns true, with
// err.
func FailAt(n int64, match func(Op) bool, err error) Hook {
	var seen atomic.Int64
	return func(op Op) error {
		if match(op) && seen.Add(1) == n {
			return err
		}
		return nil
	}
}

// Inject returns fs with a hook that is called before each call.
func Inject(fs FS, hook Hook) FS { return &injectFS{fs, hook} }

type injectFS struct {
	fs   FS
	hook Hook
}

type injectFile struct {
	f    File
	hook Hook
	path string
}

func (i *injectFS) open(k OpKind, path string, open func(string) (File, error)) (File, error) {
	if err := i.hook(Op{Kind: k, Path: path}); err != nil {
		return nil, err
	}
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	return &injectFile{f, i.hook, path}, nil
}

func (i *injectFS) Create(path string) (File, error) { return i.open(OpCreate, path, i.fs.Create) }

func (i *injectFS) OpenReadWrite(path string) (File, error) {
	return i.open(OpOpen, path, i.fs.OpenReadWrite)
}

func (i *injectFS) Open(path string) (File, error) { return i.open(OpOpen, path, i.fs.Open) }

func (i *injectFS) Remove(path string) error {
	if err := i.hook(Op{Kind: OpRemove, Path: path}); err != nil {
		return err
	}
	return i.fs.Remove(path)
}

func (i *injectFS) Rename(old, new string) error {
	if err := i.hook(Op{Kind: OpRename, Path: old}); err != nil {
		return err
	}
	return i.fs.Rename(old, new)
}

func (i *injectFS) List(dir string) ([]string, error) {
	if err := i.hook(Op{Kind: OpList, Path: dir}); err != nil {
		return nil, err
	}
	return i.fs.List(dir)
}

func (i *injectFS) MkdirAll(dir string) error {
	if err := i.hook(Op{Kind: OpMkdir, Path: dir}); err != nil {
		return err
	}
	return i.fs.MkdirAll(dir)
}

func (i *injectFS) Stat(path string) (int64, error) {
	if err := i.hook(Op{Kind: OpStat, Path: path}); err != nil {
		return 0, err
	}
	return i.fs.Stat(path)
}

// Free implements FS. It has no hook, because it changes nothing.
func (i *injectFS) Free(dir string) (free, total int64, err error) { return i.fs.Free(dir) }

func (i *injectFS) SyncDir(dir string) error {
	if err := i.hook(Op{Kind: OpSyncDir, Path: dir}); err != nil {
		return err
	}
	return i.fs.SyncDir(dir)
}

func (i *injectFS) Lock(path string) (io.Closer, error) {
	if err := i.hook(Op{Kind: OpLock, Path: path}); err != nil {
		return nil, err
	}
	return i.fs.Lock(path)
}

func (f *injectFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.hook(Op{OpRead, f.path, off, len(p)}); err != nil {
		return 0, err
	}
	return f.f.ReadAt(p, off)
}

func (f *injectFile) WriteAt(p []byte, off int64) (int, error) {
	return f.WriteVAt([][]byte{p}, off)
}

func (f *injectFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	err := f.hook(Op{OpWrite, f.path, off, n})
	if err == nil {
		return f.f.WriteVAt(bufs, off)
	}
	var short *ShortWrite
	if !errors.As(err, &short) {
		return 0, err
	}
	rest := short.N
	done := 0
	for _, b := range bufs {
		b = b[:min(rest, len(b))]
		if m, err := f.f.WriteAt(b, off+int64(done)); err != nil {
			return done + m, err
		}
		done += len(b)
		rest -= len(b)
	}
	return done, short.Err
}

func (f *injectFile) Sync() error {
	if err := f.hook(Op{Kind: OpSync, Path: f.path}); err != nil {
		return err
	}
	return f.f.Sync()
}

func (f *injectFile) Truncate(size int64) error {
	if err := f.hook(Op{Kind: OpTruncate, Path: f.path, Off: size}); err != nil {
		return err
	}
	return f.f.Truncate(size)
}

func (f *injectFile) Size() (int64, error) {
	if err := f.hook(Op{Kind: OpSize, Path: f.path}); err != nil {
		return 0, err
	}
	return f.f.Size()
}

func (f *injectFile) Close() error { return f.f.Close() }
