package vfs

import (
	"errors"
	"io"
)

// ErrLocked is what Lock's error is (errors.Is) when somebody else, in this
// process or another, holds the lock.
var ErrLocked = errors.New("already locked")

// FS is a file system. Paths use the separator of package path/filepath.
// Errors satisfy errors.Is with fs.ErrNotExist and the syscall's Errno where
// these are the cause. All methods are safe for concurrent use.
type FS interface {
	// Create makes an empty file, open for reading and writing. A file of that
	// name is emptied.
	Create(path string) (File, error)
	// OpenReadWrite opens an existing file for reading and writing.
	OpenReadWrite(path string) (File, error)
	// Open opens an existing file for reading.
	Open(path string) (File, error)
	// Remove removes a file. Those who have it open go on reading it.
	Remove(path string) error
	// Rename gives a file another name in the same directory, in place of
	// whatever had that name.
	Rename(old, new string) error
	// List returns the names (not paths) of the files in a directory, sorted;
	// sub-directories are left out.
	List(dir string) ([]string, error)
	// MkdirAll makes a directory and its parents; existing ones are fine.
	MkdirAll(dir string) error
	// Stat returns a file's size in bytes.
	Stat(path string) (int64, error)
	// Free returns how many bytes of the disk that a directory is on may still be
	// written, and how many it has, both as this user sees them.
	Free(dir string) (free, total int64, err error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on a file (made if needed) that ends with
	// Close of the result or with the process. It does not wait: if the lock is
	// held the error is ErrLocked.
	Lock(path string) (io.Closer, error)
}

// File is an open file. ReadAt, WriteAt and WriteVAt may run concurrently with
// each other and with Sync; Close may not run concurrently with anything.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WriteVAt writes the buffers one behind the other at off, as one WriteAt
	// of their concatenation would, but without copying them. It returns how
	// many bytes were written; if that is less than all, the error says why.
	// The buffers and the slice that holds them are left as they are.
	WriteVAt(bufs [][]byte, off int64) (int, error)
	// Sync makes the file's data and size durable. After an error nothing is
	// known about any write since the last Sync that succeeded, and a repeated
	// Sync proves nothing: the caller must give the file up.
	Sync() error
	// Truncate sets the file's size in bytes; a longer file reads as zeros.
	Truncate(size int64) error
	// Size returns the file's size in bytes.
	Size() (int64, error)
}
