package checkpoint

import (
	"runtime"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// followTurn and storeTurn are after how many bytes of work who makes snapshots lets others
// run: about a millisecond of it. Not sooner, for it is behind all others then, and where
// they leave no time it must get on all the same: what it has not read and written is not
// trimmed.
const (
	followTurn = 256 << 10
	storeTurn  = 64 << 10
)

// turns counts work.
type turns struct{ done int }

func (t *turns) work(bytes, turn int) {
	if t.done += bytes; t.done >= turn {
		t.done = 0
		runtime.Gosched()
	}
}

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
	return &politeFile{File: f}, nil
}

type politeFile struct {
	vfs.File
	turns turns
}

// Write implements vfs.File.
func (f *politeFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.turns.work(n, storeTurn)
	return n, err
}
