package fakedisk

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"tailrace.dev/tailrace/internal/vfs"
)

// fileCost is what a file takes besides its bytes, for its directory entry.
const fileCost = 4096

// ErrKilled is the error of every call of a killed process.
var ErrKilled = errors.New("this process was killed")

// Settings of a disk.
type Settings struct {
	Rand *rand.Rand
	// Write and Sync are the longest times of a write and a sync; 0: no time.
	Write, Sync time.Duration
}

// Disk is a machine's disk. Safe for concurrent use.
type Disk struct {
	set Settings

	mu      sync.Mutex
	mem     *vfs.Mem
	locks   map[string]*Handle
	limit   int64 // bytes; 0: none
	hangs   bool
	changed chan struct{} // closed when hangs or the limit change
	reads   int           // how many reads will fail
	stats   Stats
}

// Stats count the faults that had an effect.
type Stats struct{ Full, Failed, Hung, Flipped int }

// New returns an empty disk.
func New(s Settings) *Disk {
	if s.Rand == nil {
		s.Rand = rand.New(rand.NewPCG(1, 1))
	}
	return &Disk{set: s, mem: vfs.NewMem(), locks: map[string]*Handle{}, changed: make(chan struct{})}
}

// Open returns the file system of a new process.
func (d *Disk) Open() *Handle { return &Handle{d: d, killed: make(chan struct{})} }

// Stats returns the counts so far.
func (d *Disk) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// PowerCut removes what was not synced, or a part of it. No process may be running.
func (d *Disk) PowerCut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mem = d.mem.CrashClone(d.set.Rand)
}

// Wipe empties the disk. No process may be running.
func (d *Disk) Wipe() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mem = vfs.NewMem()
}

// Limit limits all files together to room bytes more than they take now; negative: no limit.
func (d *Disk) Limit(room int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = 0
	if room >= 0 {
		d.limit = max(d.used()+room, 1)
	}
}

// Used returns how many bytes the files take.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used()
}

func (d *Disk) used() int64 {
	files, bytes := d.mem.Used()
	return int64(files)*fileCost + bytes
}

// Hang stops all writes and syncs, or lets them continue.
func (d *Disk) Hang(hangs bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangs = hangs
	close(d.changed)
	d.changed = make(chan struct{})
}

// FailReads makes the next n reads fail.
func (d *Disk) FailReads(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads = n
}

// Flip flips a bit of a file whose path suits, and says where; ok is false if no file suits. No
// process may be running.
func (d *Disk) Flip(suits func(path string) bool) (where string, ok bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var paths []string
	for _, p := range d.mem.Paths() {
		if size, err := d.mem.Stat(p); err == nil && size > 0 && suits(p) {
			paths = append(paths, p)
		}
	}
	if len(paths) == 0 {
		return "", false, nil
	}
	path := paths[d.set.Rand.IntN(len(paths))]
	f, err := d.mem.OpenReadWrite(path)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return "", false, err
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return "", false, err
	}
	// Leave out the zeros behind the end of what was written, which are never read.
	end := len(b)
	for end > 0 && b[end-1] == 0 {
		end--
	}
	if end == 0 {
		return "", false, nil
	}
	at := d.set.Rand.IntN(end)
	switch d.set.Rand.IntN(4) { // prefer headers and trailers
	case 0:
		at = d.set.Rand.IntN(min(end, 64))
	case 1:
		at = end - 1 - d.set.Rand.IntN(min(end, 64))
	}
	b[at] ^= 1 << d.set.Rand.IntN(8)
	if _, err := f.WriteAt(b[at:at+1], int64(at)); err != nil {
		return "", false, err
	}
	d.stats.Flipped++
	return fmt.Sprintf("%s at %d of %d", path, at, size), true, f.Sync()
}

// Paths returns the files' paths, sorted.
func (d *Disk) Paths() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mem.Paths()
}

// Remove removes a file, as an operator might. No process may be running.
func (d *Disk) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(d.mem.Remove(path), d.mem.SyncDir(filepath.Dir(path)))
}

// Handle is the disk as one process sees it. It implements vfs.FS.
type Handle struct {
	d      *Disk
	killed chan struct{}
	once   sync.Once
}

// Kill ends the process: its later calls have no effect.
func (h *Handle) Kill() {
	h.once.Do(func() { close(h.killed) })
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	for path, owner := range h.d.locks {
		if owner == h {
			delete(h.d.locks, path)
		}
	}
}

// alive returns an error if the process was killed.
func (h *Handle) alive(op, path string) error {
	select {
	case <-h.killed:
		return &os.PathError{Op: op, Path: path, Err: ErrKilled}
	default:
		return nil
	}
}

// wait waits for the time of a write or a sync.
func (h *Handle) wait(op, path string, most time.Duration) error {
	d := h.d
	d.mu.Lock()
	took := time.Duration(0)
	if most > 0 {
		took = time.Duration(d.set.Rand.Int64N(int64(most)/4 + 1))
		if d.set.Rand.IntN(32) == 0 {
			took *= 4
		}
	}
	d.mu.Unlock()
	if took > 0 {
		t := time.NewTimer(took)
		select {
		case <-t.C:
		case <-h.killed:
			t.Stop()
		}
	}
	counted := false
	for {
		d.mu.Lock()
		hangs, changed := d.hangs, d.changed
		if hangs && !counted {
			counted = true
			d.stats.Hung++
		}
		d.mu.Unlock()
		if !hangs {
			return h.alive(op, path)
		}
		select {
		case <-changed:
		case <-h.killed:
			return h.alive(op, path)
		}
	}
}

// grow makes room for bytes more. It returns how many fit, and the error of a full disk if not all
// do.
func (h *Handle) grow(op, path string, bytes int64) (int64, error) {
	d := h.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limit == 0 || bytes <= 0 {
		return bytes, nil
	}
	room := max(d.limit-d.used(), 0)
	if bytes <= room {
		return bytes, nil
	}
	d.stats.Full++
	return room, &os.PathError{Op: op, Path: path, Err: syscall.ENOSPC}
}

// fs returns the present files; after a power cut they are not those from before.
func (h *Handle) fs() *vfs.Mem {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return h.d.mem
}

// Create implements vfs.FS.
func (h *Handle) Create(path string) (vfs.File, error) {
	if err := h.wait("create", path, h.d.set.Write); err != nil {
		return nil, err
	}
	mem := h.fs()
	if _, err := mem.Stat(path); err != nil {
		if _, err := h.grow("create", path, fileCost); err != nil {
			return nil, err
		}
	}
	return h.file(mem.Create(path))(path)
}

// OpenReadWrite implements vfs.FS.
func (h *Handle) OpenReadWrite(path string) (vfs.File, error) {
	if err := h.alive("open", path); err != nil {
		return nil, err
	}
	return h.file(h.fs().OpenReadWrite(path))(path)
}

// Open implements vfs.FS.
func (h *Handle) Open(path string) (vfs.File, error) {
	if err := h.alive("open", path); err != nil {
		return nil, err
	}
	return h.file(h.fs().Open(path))(path)
}

func (h *Handle) file(f vfs.File, err error) func(path string) (vfs.File, error) {
	return func(path string) (vfs.File, error) {
		if err != nil {
			return nil, err
		}
		return &file{h: h, f: f, path: path}, nil
	}
}

// Remove implements vfs.FS.
func (h *Handle) Remove(path string) error {
	if err := h.alive("remove", path); err != nil {
		return err
	}
	return h.fs().Remove(path)
}

// Rename implements vfs.FS.
func (h *Handle) Rename(old, new string) error {
	if err := h.alive("rename", old); err != nil {
		return err
	}
	return h.fs().Rename(old, new)
}

// List implements vfs.FS.
func (h *Handle) List(dir string) ([]string, error) {
	if err := h.alive("list", dir); err != nil {
		return nil, err
	}
	return h.fs().List(dir)
}

// MkdirAll implements vfs.FS.
func (h *Handle) MkdirAll(dir string) error {
	if err := h.alive("mkdir", dir); err != nil {
		return err
	}
	return h.fs().MkdirAll(dir)
}

// Stat implements vfs.FS.
func (h *Handle) Stat(path string) (int64, error) {
	if err := h.alive("stat", path); err != nil {
		return 0, err
	}
	return h.fs().Stat(path)
}

// Free implements vfs.FS.
func (h *Handle) Free(dir string) (free, total int64, err error) {
	if err := h.alive("statfs", dir); err != nil {
		return 0, 0, err
	}
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.d.limit == 0 {
		return h.d.mem.Free(dir)
	}
	return max(h.d.limit-h.d.used(), 0), h.d.limit, nil
}

// SyncDir implements vfs.FS.
func (h *Handle) SyncDir(dir string) error {
	if err := h.wait("sync", dir, h.d.set.Sync); err != nil {
		return err
	}
	return h.fs().SyncDir(dir)
}

// Lock implements vfs.FS.
func (h *Handle) Lock(path string) (io.Closer, error) {
	if err := h.alive("lock", path); err != nil {
		return nil, err
	}
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.d.locks[path] != nil {
		return nil, &os.PathError{Op: "lock", Path: path, Err: vfs.ErrLocked}
	}
	h.d.locks[path] = h
	return lock{h, path}, nil
}

type lock struct {
	h    *Handle
	path string
}

func (l lock) Close() error {
	l.h.d.mu.Lock()
	defer l.h.d.mu.Unlock()
	if l.h.d.locks[l.path] == l.h {
		delete(l.h.d.locks, l.path)
	}
	return nil
}

// file is an open file of a process.
type file struct {
	h    *Handle
	f    vfs.File
	path string
}

// ReadAt implements vfs.File.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if err := f.h.alive("read", f.path); err != nil {
		return 0, err
	}
	d := f.h.d
	d.mu.Lock()
	fails := d.reads > 0
	if fails {
		d.reads--
		d.stats.Failed++
	}
	d.mu.Unlock()
	if fails {
		return 0, &os.PathError{Op: "read", Path: f.path, Err: syscall.EIO}
	}
	return f.f.ReadAt(p, off)
}

// WriteAt implements vfs.File.
func (f *file) WriteAt(p []byte, off int64) (int, error) { return f.WriteVAt([][]byte{p}, off) }

// WriteVAt implements vfs.File.
func (f *file) WriteVAt(bufs [][]byte, off int64) (int, error) {
	if err := f.h.wait("write", f.path, f.h.d.set.Write); err != nil {
		return 0, err
	}
	size, err := f.f.Size()
	if err != nil {
		return 0, err
	}
	end := off
	for _, b := range bufs {
		end += int64(len(b))
	}
	fits, full := f.h.grow("write", f.path, end-size)
	if full == nil {
		return f.f.WriteVAt(bufs, off)
	}
	b := slices.Concat(bufs...)
	b = b[:max(min(size+fits-off, int64(len(b))), 0)]
	n, err := f.f.WriteAt(b, off)
	return n, errors.Join(err, full)
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	if err := f.h.wait("sync", f.path, f.h.d.set.Sync); err != nil {
		return err
	}
	return f.f.Sync()
}

// Truncate implements vfs.File.
func (f *file) Truncate(size int64) error {
	if err := f.h.wait("truncate", f.path, f.h.d.set.Write); err != nil {
		return err
	}
	old, err := f.f.Size()
	if err != nil {
		return err
	}
	if _, err := f.h.grow("truncate", f.path, size-old); err != nil {
		return err
	}
	return f.f.Truncate(size)
}

// Size implements vfs.File.
func (f *file) Size() (int64, error) {
	if err := f.h.alive("size", f.path); err != nil {
		return 0, err
	}
	return f.f.Size()
}

// Close implements vfs.File.
func (f *file) Close() error { return f.f.Close() }

// Below returns a filter for Flip and Remove: files of a directory whose names have a prefix.
func Below(dir, prefix string) func(string) bool {
	return func(path string) bool {
		return strings.HasPrefix(path, dir) && strings.HasPrefix(filepath.Base(path), prefix)
	}
}
