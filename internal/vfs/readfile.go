package vfs

import (
	"errors"
	"io"
)

// ReadFile returns all of a file, or an error.
func ReadFile(fsys FS, path string) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if n == len(b) {
		return b, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // the file was truncated meanwhile
	}
	return nil, err
}
