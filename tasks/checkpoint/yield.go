package checkpoint

import (
	"runtime"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// followTurn and storeTurn are the bytes of work, about a millisecond of it, after which a
// goroutine that makes snapshots yields to others. They are not lower because the goroutine then
// queues behind all others, and it must make progress even on a busy machine: what it has not read
// and written cannot be trimmed.
const (
	followTurn = 256 << 10
	storeTurn  = 64 << 10
)

// yielder counts the work since the last yield.
type yielder struct{ done int }

func (t *yielder) work(bytes, turn int) {
	if t.done += bytes; t.done >= turn {
		t.done = 0
		runtime.Gosched()
	}
}

// yieldingFS yields between the writes of pebble's flushes and compactions. A goroutine that computes
// keeps its processor for ten milliseconds, and with as many of them as processors every hop of an
// event through the job waits that long: with two, that was most of what snapshots added to p99.
type yieldingFS struct{ vfs.FS }

// Create implements vfs.FS.
func (p yieldingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	return &yieldingFile{File: f}, nil
}

type yieldingFile struct {
	vfs.File
	turns yielder
}

// Write implements vfs.File.
func (f *yieldingFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.turns.work(n, storeTurn)
	return n, err
}
