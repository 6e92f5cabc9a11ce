//go:build !linux

package vfs

import "errors"

// Free implements FS. It is supported only on Linux, where Tailrace is deployed.
func (osFS) Free(string) (free, total int64, err error) { return 0, 0, errors.ErrUnsupported }

// WriteVAt implements File with one write for each buffer. The vectored call is implemented only on
// Linux, where Tailrace is deployed. Sync is *os.File's.
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
