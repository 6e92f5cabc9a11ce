package operators

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// FileSink returns a sink that writes each item as the bytes that row appends
// (with their newline, if they are lines) to the file at path; "-" is the
// standard output.
//
// Its position is the file's length. A row's offset follows from the order of
// the rows in the log, so whoever writes it, a restarted task or one that is
// believed dead, writes the same bytes at the same place. The file is never
// extended to a position: one that is shorter than the position says has been
// tampered with, and is an error (pitfall T12). What lies behind the position is
// cut off and written again. A run that starts from nothing empties the file.
//
// The standard output cannot be cut back. A task that restarts within the
// process leaves out what has been printed; a process that starts again does not
// know whether rows behind its last commit were.
//
// sync: fsync before each commit. One task only.
func FileSink[T any](path string, row func(dst []byte, v *T) []byte, sync bool) Sink[T] {
	if path == "-" {
		return WriterSink(os.Stdout, row)
	}
	return &fileSink[T]{path: path, row: row, sync: sync}
}

type fileSink[T any] struct {
	path string
	row  func(dst []byte, v *T) []byte
	sync bool
}

func (s *fileSink[T]) Open(_, of int) (SinkWriter[T], error) {
	if of != 1 {
		return nil, fmt.Errorf("%s: a file is written by one task, not %d", s.path, of)
	}
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		if err == nil {
			err = fmt.Errorf("%s is no regular file, and rows are written at their offsets; give a file, or - for the standard output, which can go anywhere", s.path)
		}
		return nil, errors.Join(err, f.Close())
	}
	return &fileWriter[T]{s: s, f: f}, nil
}

type fileWriter[T any] struct {
	s   *fileSink[T]
	f   *os.File
	off int64 // of the first byte in buf
	buf []byte
	// cut: what lies behind off at the start is gone.
	cut bool
}

// fileBuffer is how many bytes are collected for one write.
const fileBuffer = 1 << 16

func (w *fileWriter[T]) Write(b *Batch[T]) error {
	for i := range b.Items {
		w.buf = w.s.row(w.buf, &b.Items[i])
		if len(w.buf) >= fileBuffer {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *fileWriter[T]) flush() error {
	if !w.cut {
		if err := w.f.Truncate(w.off); err != nil {
			return err
		}
		w.cut = true
	}
	n, err := w.f.WriteAt(w.buf, w.off)
	if err != nil {
		return fmt.Errorf("%d of %d bytes at offset %d: %w", n, len(w.buf), w.off, err)
	}
	w.off += int64(n)
	w.buf = w.buf[:0]
	return nil
}

func (w *fileWriter[T]) Position(dst []byte) ([]byte, error) {
	if err := w.flush(); err != nil {
		return dst, err
	}
	if w.s.sync {
		if err := w.f.Sync(); err != nil {
			return dst, err
		}
	}
	return binary.AppendUvarint(dst, uint64(w.off)), nil
}

func (w *fileWriter[T]) Restore(position []byte) error {
	off, err := fileOffset(position)
	if err != nil {
		return fmt.Errorf("%s: %w", w.s.path, err)
	}
	st, err := w.f.Stat()
	if err != nil {
		return err
	}
	if st.Size() < off {
		return fmt.Errorf("%s has %d bytes, but %d were written and committed: it has been replaced or cut; put it back, or start again with new data",
			w.s.path, st.Size(), off)
	}
	w.off = off
	return nil
}

func (w *fileWriter[T]) Close() error { return w.f.Close() }

func fileOffset(position []byte) (int64, error) {
	off, n := binary.Uvarint(position)
	if n <= 0 || n != len(position) || off > 1<<62 {
		return 0, fmt.Errorf("position %x is no file offset", position)
	}
	return int64(off), nil
}

// WriterSink is FileSink for a writer that cannot go back.
func WriterSink[T any](to io.Writer, row func(dst []byte, v *T) []byte) Sink[T] {
	return &writerSink[T]{to: to, row: row}
}

// writerSink. end is the offset behind what this process has written; all rows
// before it are out.
type writerSink[T any] struct {
	to  io.Writer
	row func(dst []byte, v *T) []byte

	mu      sync.Mutex // a task believed dead may still write
	started bool
	end     int64
}

func (s *writerSink[T]) Open(_, of int) (SinkWriter[T], error) {
	if of != 1 {
		return nil, fmt.Errorf("an output is written by one task, not %d", of)
	}
	return &streamWriter[T]{s: s}, nil
}

// put writes what of b, which belongs at offset off, has not been written.
func (s *writerSink[T]) put(off int64, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started, s.end = true, off // what an earlier process wrote is not ours
	}
	skip := s.end - off
	switch {
	case skip < 0:
		return errors.New("rows are missing before this one")
	case skip >= int64(len(b)):
		return nil
	}
	n, err := s.to.Write(b[skip:])
	s.end += int64(n)
	return err
}

type streamWriter[T any] struct {
	s   *writerSink[T]
	off int64
	buf []byte
}

func (w *streamWriter[T]) Write(b *Batch[T]) error {
	for i := range b.Items {
		w.buf = w.s.row(w.buf, &b.Items[i])
	}
	if len(w.buf) >= fileBuffer {
		return w.flush()
	}
	return nil
}

func (w *streamWriter[T]) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if err := w.s.put(w.off, w.buf); err != nil {
		return err
	}
	w.off += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

func (w *streamWriter[T]) Position(dst []byte) ([]byte, error) {
	if err := w.flush(); err != nil {
		return dst, err
	}
	return binary.AppendUvarint(dst, uint64(w.off)), nil
}

func (w *streamWriter[T]) Restore(position []byte) (err error) {
	w.off, err = fileOffset(position)
	return err
}

func (w *streamWriter[T]) Close() error { return nil }
