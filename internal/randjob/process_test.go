package randjob

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"tailrace.dev/tailrace/internal/vfs"
)

// process stands for the operating system's process in which a job and its log run, once:
// it can die at any write, and from that moment nothing that is still running in it has an
// effect on anything outside: the log's disk, the store of snapshots, the files of sinks.
type process struct {
	// mu is held while something outside is touched, for writing while the log's disk is
	// changed: what the next process finds is taken when nothing is under way any more.
	mu   sync.RWMutex
	disk *vfs.Mem
	dead atomic.Bool
	// cut: it was the machine that died; rng says what of the writes is lost that were not
	// synced.
	cut bool
	rng *rand.Rand

	writes int // of the log, since arm
	armed  *trigger
}

// trigger is what happens at a write.
type trigger struct {
	at int
	// dies: the process dies at the write; cut: the machine does; torn: half of the write is
	// done.
	dies, cut, torn bool
	hit             chan struct{} // closed when it has happened
}

// errDead is what everything fails with in a process that is dead.
var errDead = errors.New("the process is dead")

func newProcess(disk *vfs.Mem, rng *rand.Rand) *process { return &process{disk: disk, rng: rng} }

// arm makes something happen behind so many writes.
func (p *process) arm(t *trigger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes, p.armed = 0, t
}

// disarm takes back what was to happen at a write.
func (p *process) disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = nil
}

// left ends the process, if it still lives, and returns the disk that the next one finds.
// What it had started before its death may end, and is then there.
func (p *process) left() *vfs.Mem {
	p.dead.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return p.disk.CrashClone(p.rng)
	}
	return p.disk.KillClone()
}

// touch calls f, which touches something outside, unless the process is dead.
func (p *process) touch(f func() error) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.dead.Load() {
		return errDead
	}
	return f()
}

// change is touch for something that changes the log's disk.
func (p *process) change(f func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead.Load() {
		return errDead
	}
	return f()
}

// write is change for a write of n bytes, at which the process may die; f makes the first
// so many of them.
func (p *process) write(n int, f func(n int) (int, error)) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead.Load() {
		return 0, errDead
	}
	t := p.armed
	if p.writes++; t == nil || p.writes < t.at {
		return f(n)
	}
	p.armed = nil
	defer close(t.hit)
	if !t.dies {
		return f(n)
	}
	if t.torn {
		n /= 2
	}
	if _, err := f(n); err != nil {
		return 0, err
	}
	p.cut = t.cut
	p.dead.Store(true)
	return 0, errDead
}

// FS returns the process's view of the log's disk.
func (p *process) FS() vfs.FS { return &processFS{p} }

type processFS struct{ p *process }

func (s *processFS) open(open func(string) (vfs.File, error), path string) (f vfs.File, err error) {
	err = s.p.change(func() error {
		f, err = open(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &processFile{s.p, f}, nil
}

func (s *processFS) Create(path string) (vfs.File, error) { return s.open(s.p.disk.Create, path) }

func (s *processFS) OpenReadWrite(path string) (vfs.File, error) {
	return s.open(s.p.disk.OpenReadWrite, path)
}

func (s *processFS) Open(path string) (vfs.File, error) { return s.open(s.p.disk.Open, path) }

func (s *processFS) Remove(path string) error {
	return s.p.change(func() error { return s.p.disk.Remove(path) })
}

func (s *processFS) Rename(old, name string) error {
	return s.p.change(func() error { return s.p.disk.Rename(old, name) })
}

func (s *processFS) List(dir string) (names []string, err error) {
	err = s.p.touch(func() error {
		names, err = s.p.disk.List(dir)
		return err
	})
	return names, err
}

func (s *processFS) MkdirAll(dir string) error {
	return s.p.change(func() error { return s.p.disk.MkdirAll(dir) })
}

func (s *processFS) Stat(path string) (n int64, err error) {
	err = s.p.touch(func() error {
		n, err = s.p.disk.Stat(path)
		return err
	})
	return n, err
}

func (s *processFS) Free(dir string) (free, total int64, err error) { return s.p.disk.Free(dir) }

func (s *processFS) SyncDir(dir string) error {
	return s.p.change(func() error { return s.p.disk.SyncDir(dir) })
}

// Lock is free in a new process, even if a dead one held it.
func (s *processFS) Lock(path string) (io.Closer, error) { return s.p.disk.Lock(path) }

type processFile struct {
	p *process
	f vfs.File
}

func (f *processFile) ReadAt(b []byte, off int64) (n int, err error) {
	err = f.p.touch(func() error {
		n, err = f.f.ReadAt(b, off)
		return err
	})
	return n, err
}

func (f *processFile) WriteAt(b []byte, off int64) (int, error) {
	return f.p.write(len(b), func(n int) (int, error) { return f.f.WriteAt(b[:n], off) })
}

func (f *processFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	all := 0
	for _, b := range bufs {
		all += len(b)
	}
	return f.p.write(all, func(n int) (int, error) {
		if n == all {
			return f.f.WriteVAt(bufs, off)
		}
		done := 0
		for _, b := range bufs {
			b = b[:min(len(b), n-done)]
			if _, err := f.f.WriteAt(b, off+int64(done)); err != nil {
				return done, err
			}
			done += len(b)
		}
		return done, nil
	})
}

func (f *processFile) Sync() error { return f.p.change(f.f.Sync) }

func (f *processFile) Truncate(size int64) error {
	return f.p.change(func() error { return f.f.Truncate(size) })
}

func (f *processFile) Size() (n int64, err error) {
	err = f.p.touch(func() error {
		n, err = f.f.Size()
		return err
	})
	return n, err
}

func (f *processFile) Close() error { return f.f.Close() }
