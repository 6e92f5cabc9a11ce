package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"tailrace.dev/tailrace/operators/connect"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/item"
)

// Sink returns a sink that writes each item as the bytes that row appends (with their newline,
// if they are lines) to the file at path; "-" is the standard output.
//
// Its position is the file's length. A row's offset follows from the order of the rows in the log,
// so any instance that writes it, even one that is wrongly believed dead, writes the same bytes at
// the same place. The sink never extends the file to its position: a file that is shorter than the
// position was modified by others, and is an error (pitfall T12).
//
// A new instance removes what lies behind its position: rows that its predecessor had written and
// not committed, or, in a run that starts from nothing, all of the file. It does so with the file
// locked (flock), after it has asked the log whether it is still the task's only instance, so that
// an instance that was stopped and resumes late removes nothing (ADR 40). The file system must
// support locks.
//
// What a reader of the file sees: the bytes below the committed end never change. Behind them are
// rows that are not committed yet; the last one may be incomplete. They are written again, as the
// same bytes, after a failure of the task or of the whole job, and perhaps as other bytes after a
// power failure that removed records from the log. A job that has ended, or was stopped in order,
// leaves exactly the committed rows. A killed job leaves rows that are not committed, until it is
// started again. A reader that wants only committed rows reads them from the log (tasks.Reader).
//
// The standard output cannot be truncated. A task that restarts within the process does not repeat
// what was printed; a new process cannot know whether rows behind its last commit were printed.
//
// sync: fsync before each commit. Without it a power failure of the host may leave fewer bytes than
// are committed (an error at the next start), or zeros in their place, which nothing detects. The
// sink has one task only.
func Sink[T any](path string, row func(dst []byte, v *T) []byte, sync bool) connect.Sink[T] {
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

func (s *fileSink[T]) Open(_, of int) (connect.SinkWriter[T], error) {
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
	// fence excludes other instances that have the file open. Without a fence nothing is removed
	// from the file.
	fence exec.Fence
}

// fileBuffer is how many bytes are collected for one write.
const fileBuffer = 1 << 16

func (w *fileWriter[T]) Write(b *item.Batch[T]) error {
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

// Fence implements connect.Fenced: it removes what lies behind the position.
func (w *fileWriter[T]) Fence(f exec.Fence) error {
	w.fence = f
	return w.exclusively(true, func(size int64) error {
		if size == w.off {
			return nil
		}
		return w.f.Truncate(w.off)
	})
}

func (w *fileWriter[T]) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.exclusively(false, func(int64) error {
		n, err := w.f.WriteAt(w.buf, w.off)
		if err != nil {
			return fmt.Errorf("%d of %d bytes at offset %d: %w", n, len(w.buf), w.off, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.off += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

// exclusively calls act with the file's size, which is not below the offset, while no other
// instance changes the file; with check, only if this instance is the task's only one.
//
// An instance becomes the only one before its first call of exclusively. So either an act of a
// predecessor has ended when that call acquires the lock, or the predecessor's check finds that it
// is no longer the only one.
func (w *fileWriter[T]) exclusively(check bool, act func(size int64) error) error {
	for n := 0; ; n++ {
		done, err := w.locked(check, act)
		if done || err != nil {
			return err
		}
		if w.fence.Pause == nil {
			return fmt.Errorf("%s is locked by another writer", w.s.path)
		}
		if err := w.fence.Pause(n); err != nil {
			return fmt.Errorf("%s is locked by another writer, which may be an earlier instance of this task in a process that is stopped (fuser shows its pid; end it), or the log does not answer: %w", w.s.path, err)
		}
	}
}

// locked makes one attempt of exclusively. done is false if another instance has the lock, or if
// the log does not answer which instance is the only one.
func (w *fileWriter[T]) locked(check bool, act func(size int64) error) (done bool, err error) {
	if err := lockFile(w.f); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return false, fmt.Errorf("%s: lock: %w; a file sink needs a file system that has locks (flock)", w.s.path, err)
	}
	defer func() { err = errors.Join(err, syscall.Flock(int(w.f.Fd()), syscall.LOCK_UN)) }()
	if check && w.fence.Check != nil {
		if alone, err := w.fence.Check(); !alone || err != nil {
			return false, err
		}
	}
	size, err := w.size()
	if err != nil {
		return false, err
	}
	return true, act(size)
}

func lockFile(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// size returns the file's size, which must not be below the offset.
func (w *fileWriter[T]) size() (int64, error) {
	st, err := w.f.Stat()
	if err != nil {
		return 0, err
	}
	if st.Size() < w.off {
		return 0, fmt.Errorf("%s has %d bytes, but %d were written: it has been replaced or cut; put it back, or start again with new data",
			w.s.path, st.Size(), w.off)
	}
	return st.Size(), nil
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
	w.off = off
	_, err = w.size()
	return err
}

func (w *fileWriter[T]) Close() error { return w.f.Close() }

func fileOffset(position []byte) (int64, error) {
	off, n := binary.Uvarint(position)
	if n <= 0 || n != len(position) || off > 1<<62 {
		return 0, fmt.Errorf("position %x is no file offset", position)
	}
	return int64(off), nil
}

// WriterSink is Sink for a writer that cannot be truncated.
func WriterSink[T any](to io.Writer, row func(dst []byte, v *T) []byte) connect.Sink[T] {
	return &writerSink[T]{to: to, row: row}
}

// writerSink writes to a stream. end is the offset behind what this process has written; all rows
// before it are written.
type writerSink[T any] struct {
	to  io.Writer
	row func(dst []byte, v *T) []byte

	mu      sync.Mutex // a task that is wrongly believed dead may still write
	started bool
	end     int64
}

func (s *writerSink[T]) Open(_, of int) (connect.SinkWriter[T], error) {
	if of != 1 {
		return nil, fmt.Errorf("an output is written by one task, not %d", of)
	}
	return &streamWriter[T]{s: s}, nil
}

// put writes the part of b, which belongs at offset off, that has not been written.
func (s *writerSink[T]) put(off int64, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started, s.end = true, off // what an earlier process wrote is unknown here
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

func (w *streamWriter[T]) Write(b *item.Batch[T]) error {
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
