package checkpoint

import (
	"runtime"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// politeFS lets others run between the writes of pebble's flushes and compactions. A
// goroutine that computes keeps its processor for ten milliseconds, and with as many of
// them as processors every hop of an event through the job waits as long: on two, that
// was most of what snapshots cost p99.
type politeFS struct{ vfs.FS }

// Create implements vfs.FS.
func (p politeFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	return politeFile{f}, nil
}

type politeFile struct{ vfs.File }

// Write implements vfs.File.
func (f politeFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	runtime.Gosched()
	return n, err
}
