package vfs

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// iovMax is Linux's UIO_MAXIOV: how many buffers one pwritev takes.
const iovMax = 1024

// piece bounds the bytes of one write call. A goroutine whose system call takes longer than about
// 20 µs loses its processor and must queue for one afterwards. With a megabyte per call this
// happened to the log's loop at every write.
const piece = 128 << 10

// WriteVAt implements File with pwritev; it continues after short writes.
func (f *osFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	total := 0
	skip := 0 // bytes of bufs[0] that are already written
	for {
		for len(bufs) > 0 && skip >= len(bufs[0]) {
			skip -= len(bufs[0])
			bufs = bufs[1:]
		}
		if len(bufs) == 0 {
			return total, nil
		}
		n, err := f.writeSome(bufs, skip, off+int64(total))
		if err == unix.EINTR {
			continue
		}
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return total, &os.PathError{Op: "pwritev", Path: f.Name(), Err: err}
		}
		total += n
		skip += n
	}
}

// writeSome makes one system call that writes at most a piece. It leaves out the first skip bytes
// of the first buffer.
func (f *osFile) writeSome(bufs [][]byte, skip int, off int64) (int, error) {
	if first := bufs[0][skip:]; skip > 0 || len(first) >= piece {
		return unix.Pwrite(f.fd, first[:min(len(first), piece)], off)
	}
	n, size := 0, 0
	for n < len(bufs) && n < iovMax && size+len(bufs[n]) <= piece {
		size += len(bufs[n])
		n++
	}
	return unix.Pwritev(f.fd, bufs[:n], off)
}

// Free implements FS.
func (osFS) Free(dir string) (free, total int64, err error) {
	var s unix.Statfs_t
	for {
		err = unix.Statfs(dir, &s)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	used := s.Blocks - s.Bfree
	return int64(s.Bavail) * s.Frsize, int64(used+s.Bavail) * s.Frsize, nil
}

// Sync implements File with fdatasync: data and size, not the times.
func (f *osFile) Sync() error {
	for {
		err := unix.Fdatasync(f.fd)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
		return nil
	}
}
