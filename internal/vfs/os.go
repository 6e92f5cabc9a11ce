package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// OS is the machine's file system.
var OS FS = osFS{}

type osFS struct{}

// osFile adds the vectored write and fdatasync to *os.File; see os_linux.go
// and os_other.go.
type osFile struct {
	*os.File
	fd int // f.Fd(), which costs a lock each time
}

func openOS(path string, flag int) (File, error) {
	f, err := os.OpenFile(path, flag, 0o644)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f, fd: int(f.Fd())}, nil
}

func (osFS) Create(path string) (File, error) {
	return openOS(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (osFS) OpenReadWrite(path string) (File, error) { return openOS(path, os.O_RDWR) }

func (osFS) Open(path string) (File, error) { return openOS(path, os.O_RDONLY) }

func (osFS) Remove(path string) error { return os.Remove(path) }

func (osFS) Rename(old, new string) error {
	if err := sameDir(old, new); err != nil {
		return err
	}
	return os.Rename(old, new)
}

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (osFS) MkdirAll(dir string) error {
	// MkdirAll does not report which parents it has created, so make the names of all missing ones
	// durable by syncing each parent, deepest last.
	var missing []string
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil {
			break
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		missing = append(missing, d)
		if filepath.Dir(d) == d {
			break
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := OS.SyncDir(filepath.Dir(missing[i])); err != nil {
			return err
		}
	}
	return nil
}

func (osFS) Stat(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) Lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	// flock belongs to the open file, so a second Lock in this process is refused like one from
	// another process; the kernel releases it at exit.
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	if err == syscall.EWOULDBLOCK {
		err = ErrLocked
	}
	return nil, errors.Join(&os.PathError{Op: "lock", Path: path, Err: err}, f.Close())
}

func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// sameDir checks that a rename stays inside one directory, so that one SyncDir makes it durable.
func sameDir(old, new string) error {
	if filepath.Dir(old) != filepath.Dir(new) {
		return fmt.Errorf("rename %s to %s: not in the same directory", old, new)
	}
	return nil
}
