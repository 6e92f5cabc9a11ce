package vfs

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// sector is the unit in which a disk writes: of a longer write any subset of its sectors may
// survive a power cut.
const sector = 512

// Mem is a file system in memory that remembers what has been synced; see the
// package comment for what CrashClone keeps. The zero value is not usable.
type Mem struct {
	mu     sync.Mutex
	dirs   map[string]bool
	names  map[string]*inode // as the running program sees them
	synced map[string]*inode // as they certainly are after a power cut
	steps  []nameStep        // lead from synced to names, in order
	locks  map[string]bool
	room   int64 // bytes that all files may have together; 0: no limit
}

// inode is a file's content. Invariant: synced with all of steps applied is live.
type inode struct {
	live, synced content
	steps        []dataStep
}

// dataStep is a write (data != nil) at off, or a truncate to off.
type dataStep struct {
	off  int64
	data []byte
}

// nameStep gives node the name path, or removes the name (node == nil). A rename also removes old.
type nameStep struct {
	path, old string
	node      *inode
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	return &Mem{
		dirs:   map[string]bool{},
		names:  map[string]*inode{},
		synced: map[string]*inode{},
		locks:  map[string]bool{},
	}
}

// SetCapacity limits the bytes of all files together. As on a disk, a write that would exceed the
// limit writes what fits and fails with ENOSPC. 0: no limit.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.room = bytes
}

// CrashClone returns what a power cut at this moment might leave; rng decides what is kept of the
// data that is not synced. m is unchanged and shares nothing with the clone.
func (m *Mem) CrashClone(rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	// Iterate over maps in order, so that the result depends on rng alone.
	names := maps.Clone(m.synced)
	keep := odds(rng)
	for _, s := range m.steps {
		if rng.Float64() < keep {
			s.apply(names)
		}
	}
	c := NewMem()
	c.dirs = maps.Clone(m.dirs)
	clones := map[*inode]*inode{}
	for _, path := range slices.Sorted(maps.Keys(names)) {
		n := names[path]
		if clones[n] == nil {
			clones[n] = newInode(n.crash(rng))
		}
		c.names[path] = clones[n]
	}
	c.synced = maps.Clone(c.names)
	return c
}

// KillClone returns what a SIGKILL at this moment would leave: everything that was written, and all
// of it counts as synced.
func (m *Mem) KillClone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem()
	c.dirs = maps.Clone(m.dirs)
	for path, n := range m.names {
		c.names[path] = newInode(n.live.clone())
	}
	c.synced = maps.Clone(c.names)
	return c
}

// Fork returns what a SIGKILL at this moment would leave to the next process on a running machine:
// everything that was written. What was not synced is still not synced, so a later power cut may
// lose it.
func (m *Mem) Fork() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem()
	c.dirs = maps.Clone(m.dirs)
	clones := map[*inode]*inode{}
	clone := func(n *inode) *inode {
		if n == nil {
			return nil
		}
		if clones[n] == nil {
			clones[n] = &inode{live: n.live.clone(), synced: n.synced.clone(), steps: slices.Clone(n.steps)}
		}
		return clones[n]
	}
	for path, n := range m.names {
		c.names[path] = clone(n)
	}
	for path, n := range m.synced {
		c.synced[path] = clone(n)
	}
	for _, s := range m.steps {
		c.steps = append(c.steps, nameStep{s.path, s.old, clone(s.node)})
	}
	return c
}

// Paths returns the paths of all files, sorted.
func (m *Mem) Paths() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.names))
}

// Used returns the number of files and their bytes.
func (m *Mem) Used() (files int, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used()
}

func (m *Mem) used() (files int, bytes int64) {
	for _, n := range m.names {
		bytes += n.live.size
	}
	return len(m.names), bytes
}

// odds draws the probability that an un-synced step survives, such that clones in which nothing or
// everything survives are not rare.
func odds(rng *rand.Rand) float64 {
	return []float64{0, 0.5, 0.9, 1}[rng.IntN(4)]
}

func newInode(c content) *inode {
	return &inode{synced: c.clone(), live: c}
}

// crash returns the content after a power cut.
func (n *inode) crash(rng *rand.Rand) content {
	out := n.synced.clone()
	keep := odds(rng)
	for _, s := range n.steps {
		if s.data == nil {
			if rng.Float64() < keep {
				s.apply(&out)
			}
			continue
		}
		for off, rest := s.off, s.data; len(rest) > 0; {
			piece := min(int64(len(rest)), sector-off%sector)
			if rng.Float64() < keep {
				out.writeAt(rest[:piece], off)
			}
			off, rest = off+piece, rest[piece:]
		}
	}
	return out
}

func (s dataStep) apply(c *content) {
	if s.data == nil {
		c.resize(s.off)
	} else {
		c.writeAt(s.data, s.off)
	}
}

func (s nameStep) apply(names map[string]*inode) {
	if s.old != "" {
		delete(names, s.old)
	}
	if s.node == nil {
		delete(names, s.path)
	} else {
		names[s.path] = s.node
	}
}

func (m *Mem) step(s nameStep) {
	s.apply(m.names)
	m.steps = append(m.steps, s)
}

func notExist(op, path string) error {
	return &os.PathError{Op: op, Path: path, Err: fs.ErrNotExist}
}

// Create implements FS.
func (m *Mem) Create(path string) (File, error) {
	path = filepath.Clean(path)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dirs[filepath.Dir(path)] {
		return nil, notExist("create", path)
	}
	n := m.names[path]
	if n == nil {
		n = &inode{}
		m.step(nameStep{path: path, node: n})
	} else {
		n.do(dataStep{off: 0})
	}
	return &memFile{fs: m, node: n, path: path, write: true}, nil
}

// OpenReadWrite implements FS.
func (m *Mem) OpenReadWrite(path string) (File, error) { return m.open(path, true) }

// Open implements FS.
func (m *Mem) Open(path string) (File, error) { return m.open(path, false) }

func (m *Mem) open(path string, write bool) (File, error) {
	path = filepath.Clean(path)
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[path]
	if n == nil {
		return nil, notExist("open", path)
	}
	return &memFile{fs: m, node: n, path: path, write: write}, nil
}

// Remove implements FS.
func (m *Mem) Remove(path string) error {
	path = filepath.Clean(path)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[path] == nil {
		return notExist("remove", path)
	}
	m.step(nameStep{path: path})
	return nil
}

// Rename implements FS.
func (m *Mem) Rename(old, new string) error {
	if err := sameDir(old, new); err != nil {
		return err
	}
	old, new = filepath.Clean(old), filepath.Clean(new)
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[old]
	if n == nil {
		return notExist("rename", old)
	}
	m.step(nameStep{path: new, old: old, node: n})
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	dir = filepath.Clean(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dirs[dir] {
		return nil, notExist("list", dir)
	}
	var names []string
	for path := range m.names {
		if filepath.Dir(path) == dir {
			names = append(names, filepath.Base(path))
		}
	}
	slices.Sort(names)
	return names, nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for d := filepath.Clean(dir); !m.dirs[d]; d = filepath.Dir(d) {
		m.dirs[d] = true
	}
	return nil
}

// Stat implements FS.
func (m *Mem) Stat(path string) (int64, error) {
	path = filepath.Clean(path)
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[path]
	if n == nil {
		return 0, notExist("stat", path)
	}
	return n.live.size, nil
}

// Free implements FS.
func (m *Mem) Free(string) (free, total int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.room == 0 {
		return boundless, boundless, nil
	}
	_, used := m.used()
	return max(m.room-used, 0), m.room, nil
}

// boundless is the reported size of a disk without a limit.
const boundless = 1 << 60

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	dir = filepath.Clean(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dirs[dir] {
		return notExist("sync", dir)
	}
	m.steps = slices.DeleteFunc(m.steps, func(s nameStep) bool {
		if filepath.Dir(s.path) != dir {
			return false
		}
		s.apply(m.synced)
		return true
	})
	return nil
}

// Lock implements FS. The lock is not a file.
func (m *Mem) Lock(path string) (io.Closer, error) {
	path = filepath.Clean(path)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[path] {
		return nil, &os.PathError{Op: "lock", Path: path, Err: ErrLocked}
	}
	m.locks[path] = true
	return &memLock{m, path}, nil
}

type memLock struct {
	fs   *Mem
	path string
}

func (l *memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locks, l.path)
	return nil
}

// do applies a step, which the running program sees at once.
func (n *inode) do(s dataStep) {
	s.apply(&n.live)
	n.steps = append(n.steps, s)
}

type memFile struct {
	fs     *Mem
	node   *inode
	path   string
	write  bool
	closed bool
}

// use locks the file system. It returns an error if the file must not be used so.
func (f *memFile) use(op string, write bool) (unlock func(), err error) {
	f.fs.mu.Lock()
	switch {
	case f.closed:
		err = fs.ErrClosed
	case write && !f.write:
		err = fs.ErrPermission
	}
	if err != nil {
		f.fs.mu.Unlock()
		return nil, &os.PathError{Op: op, Path: f.path, Err: err}
	}
	return f.fs.mu.Unlock, nil
}

// ReadAt implements File.
func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	unlock, err := f.use("read", false)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if off < 0 {
		return 0, fmt.Errorf("read %s: negative offset", f.path)
	}
	n := f.node.live.readAt(p, off)
	if n < len(p) || off >= f.node.live.size {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements File.
func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	return f.WriteVAt([][]byte{p}, off)
}

// WriteVAt implements File.
func (f *memFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	unlock, err := f.use("write", true)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if off < 0 {
		return 0, fmt.Errorf("write %s: negative offset", f.path)
	}
	data := concat(bufs)
	if len(data) == 0 {
		return 0, nil
	}
	if size := f.node.live.size; f.fs.room > 0 && off+int64(len(data)) > size {
		_, used := f.fs.used()
		if fits := max(size, size+f.fs.room-used) - off; fits < int64(len(data)) {
			if fits = max(fits, 0); fits > 0 {
				f.node.do(dataStep{off, data[:fits]})
			}
			return int(fits), &os.PathError{Op: "write", Path: f.path, Err: syscall.ENOSPC}
		}
	}
	f.node.do(dataStep{off, data})
	return len(data), nil
}

// Sync implements File.
func (f *memFile) Sync() error {
	unlock, err := f.use("sync", false)
	if err != nil {
		return err
	}
	defer unlock()
	for _, s := range f.node.steps {
		s.apply(&f.node.synced)
	}
	f.node.steps = nil
	return nil
}

// Truncate implements File.
func (f *memFile) Truncate(size int64) error {
	unlock, err := f.use("truncate", true)
	if err != nil {
		return err
	}
	defer unlock()
	f.node.do(dataStep{off: size})
	return nil
}

// Size implements File.
func (f *memFile) Size() (int64, error) {
	unlock, err := f.use("size", false)
	if err != nil {
		return 0, err
	}
	defer unlock()
	return f.node.live.size, nil
}

// Close implements File.
func (f *memFile) Close() error {
	unlock, err := f.use("close", false)
	if err != nil {
		return err
	}
	defer unlock()
	f.closed = true
	return nil
}

// zeros is the data of steps that write only zeros: files are given their space like that.
var zeros [1 << 20]byte

// concat returns the bytes of all buffers. The result must not be changed.
func concat(bufs [][]byte) []byte {
	n, zero := 0, true
	for _, b := range bufs {
		n += len(b)
		for zero && len(b) > 0 {
			k := min(len(b), len(zeroPage))
			zero, b = bytes.Equal(b[:k], zeroPage[:k]), b[k:]
		}
	}
	if zero && n <= len(zeros) {
		return zeros[:n]
	}
	return slices.Concat(bufs...)
}
