package vfs

import (
	"errors"
	"io"
)

// ErrLocked is the error of Lock (errors.Is) if this or another process holds the lock.
var ErrLocked = errors.New("already locked")

// FS is a file system. Paths use the separator of package path/filepath.
// Errors satisfy errors.Is with fs.ErrNotExist and the syscall's Errno where
// these are the cause. All methods are safe for concurrent use.
type FS interface {
	// Create creates an empty file, open for reading and writing, or truncates an existing one.
	Create(path string) (File, error)
	// OpenReadWrite opens an existing file for reading and writing.
	OpenReadWrite(path string) (File, error)
	// Open opens an existing file for reading.
	Open(path string) (File, error)
	// Remove removes a file. It stays readable for those who have it open.
	Remove(path string) error
	// Rename gives a file another name in the same directory and replaces a file of that name.
	Rename(old, new string) error
	// List returns the names (not paths) of the files in a directory, sorted, without
	// sub-directories.
	List(dir string) ([]string, error)
	// MkdirAll creates a directory and its parents. It is no error if they exist.
	MkdirAll(dir string) error
	// Stat returns a file's size in bytes.
	Stat(path string) (int64, error)
	// Free returns the free and the total bytes of the disk with directory dir, as this user sees
	// them.
	Free(dir string) (free, total int64, err error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on a file, which it creates if needed. Close of the result, or
	// the end of the process, releases the lock. Lock does not wait: if the lock is held, the error
	// is ErrLocked.
	Lock(path string) (io.Closer, error)
}

// File is an open file. ReadAt, WriteAt and WriteVAt may run concurrently with
// each other and with Sync; Close may not run concurrently with anything.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WriteVAt writes the concatenation of the buffers at off, without copying them. It returns the
	// number of bytes written, and an error if that is less than all. It does not change the
	// buffers or the slice that holds them.
	WriteVAt(bufs [][]byte, off int64) (int, error)
	// Sync makes the file's data and size durable. After an error the state of all writes since the
	// last successful Sync is unknown, and a later successful Sync proves nothing: the caller must
	// stop using the file.
	Sync() error
	// Truncate sets the file's size in bytes; a longer file reads as zeros.
	Truncate(size int64) error
	// Size returns the file's size in bytes.
	Size() (int64, error)
}
