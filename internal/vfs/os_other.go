//go:build !linux

package vfs

import "errors"

// Free implements FS; it is known where Tailrace is deployed, on Linux.
func (osFS) Free(string) (free, total int64, err error) { return 0, 0, errors.ErrUnsupported }

// WriteVAt implements File with one write a buffer; the vectored call is only
// worth its own code where Tailrace is deployed, on Linux. Sync is *os.File's.
func (f *osFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	total := 0
	for _, b := range bufs {
		n, err := f.WriteAt(b, off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
