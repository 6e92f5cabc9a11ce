package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"

	"tailrace.dev/tailrace/operators/exec"
)

// Pebble stores the state of all tasks of a process, in one database. Keys:
//
//	instance(u32) table(u16) group(u16) key, big endian → value
//
// Pebble is safe for concurrent use; each Task belongs to one task.
type Pebble struct {
	db     *pebble.DB
	dir    string
	memory int
	next   atomic.Uint32
	tables atomic.Int64 // tables that share the memory
	bytes  atomic.Uint64

	mu     sync.Mutex
	failed error
}

// OpenPebble creates an empty database in a directory, which it owns and removes. memory is the
// number of bytes that all of it may use: half for the tables' own entries, the rest for pebble's
// caches.
func OpenPebble(dir string, memory int) (*Pebble, error) {
	if memory < 1<<20 {
		return nil, fmt.Errorf("state in %s: %d bytes of memory; at least 1 MiB", dir, memory)
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	p := &Pebble{dir: dir, memory: memory}
	cache := pebble.NewCache(int64(memory / 4))
	defer cache.Unref()
	o := &pebble.Options{
		Logger: quiet{}, FormatMajorVersion: pebble.FormatNewest, DisableWAL: true, Cache: cache,
		// At most two memtables wait to be written.
		MemTableSize: uint64(memory / 16), MemTableStopWritesThreshold: 2,
		L0CompactionThreshold: 4, L0StopWritesThreshold: 24,
		EventListener: &pebble.EventListener{BackgroundError: p.fail, DataCorruption: p.found},
	}
	// Keys are read one by one, in no order, and many are new: the cost is what has to be read and
	// decompressed for each.
	for i := range o.Levels {
		l := &o.Levels[i]
		l.FilterPolicy, l.FilterType = bloom.FilterPolicy(10), pebble.TableFilter
		l.BlockSize = 4 << 10
		l.Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	}
	var err error
	if p.db, err = pebble.Open(dir, o); err != nil {
		return nil, fmt.Errorf("state in %s: %w", dir, err)
	}
	return p, nil
}

// quiet keeps pebble from writing to standard error.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf("state: "+format, args...)) // invariant: pebble calls it only for errors that it cannot survive
}

// found takes note of a damaged file, which pebble would else end the process for.
func (p *Pebble) found(i pebble.DataCorruptionInfo) {
	p.fail(fmt.Errorf("%s is damaged: check the disk, and start again: the state is made anew from snapshots and the log", filepath.Base(i.Path)))
}

func (p *Pebble) fail(err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = fmt.Errorf("state in %s: %w", p.dir, err)
	}
}

func (p *Pebble) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// Written returns how many bytes of entries have left memory since the database was opened.
func (p *Pebble) Written() uint64 { return p.bytes.Load() }

// Entries counts the entries of all tasks, by reading them.
func (p *Pebble) Entries() (n int, err error) {
	it, err := p.db.NewIter(nil)
	if err != nil {
		return 0, err
	}
	for it.First(); it.Valid(); it.Next() {
		n++
	}
	return n, errors.Join(it.Error(), it.Close())
}

// Close removes the database.
func (p *Pebble) Close() error { return errors.Join(p.db.Close(), os.RemoveAll(p.dir)) }

// Task returns an empty store for one instance of a task.
func (p *Pebble) Task() *Task {
	return &Task{p: p, prefix: binary.BigEndian.AppendUint32(nil, p.next.Add(1)), batch: p.db.NewBatch()}
}

// Task stores the tables of one instance. Only the task's goroutine uses it.
type Task struct {
	p      *Pebble
	prefix []byte
	batch  *pebble.Batch
	key    []byte
	tables int64
	closed bool
}

// Table returns the store of a table.
func (t *Task) Table(table int) exec.Home {
	return &home{t: t, prefix: binary.BigEndian.AppendUint16(append([]byte(nil), t.prefix...), uint16(table))}
}

// Err returns the first error of the database. Results returned since then may be wrong.
func (t *Task) Err() error { return t.p.err() }

// Close removes the task's state.
func (t *Task) Close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	t.p.tables.Add(-t.tables)
	end := binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(t.prefix)+1)
	return errors.Join(t.batch.Close(), t.p.db.DeleteRange(t.prefix, end, pebble.NoSync))
}

func (t *Task) commit() {
	if t.batch.Empty() {
		return
	}
	t.p.bytes.Add(uint64(t.batch.Len()))
	t.p.fail(t.batch.Commit(pebble.NoSync))
	t.batch.Reset()
}

type home struct {
	t      *Task
	prefix []byte
	counts bool // it is counted among the tables that share the memory
}

func (h *home) at(group int, key []byte) []byte {
	h.t.key = append(binary.BigEndian.AppendUint16(append(h.t.key[:0], h.prefix...), uint16(group)), key...)
	return h.t.key
}

// Get implements exec.Home.
func (h *home) Get(group int, key, dst []byte) ([]byte, bool) {
	v, closer, err := h.t.p.db.Get(h.at(group, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, false
	}
	if err != nil {
		h.t.p.fail(err)
		return dst, false
	}
	dst = append(dst, v...)
	h.t.p.fail(closer.Close())
	return dst, true
}

// batchBytes is the most that waits for a Flush.
const batchBytes = 256 << 10

// Put implements exec.Home.
func (h *home) Put(group int, key, value []byte) {
	h.t.p.fail(h.t.batch.Set(h.at(group, key), value, nil))
	if h.t.batch.Len() >= batchBytes {
		h.t.commit()
	}
}

// Delete implements exec.Home.
func (h *home) Delete(group int, key []byte) {
	h.t.p.fail(h.t.batch.Delete(h.at(group, key), nil))
	if h.t.batch.Len() >= batchBytes {
		h.t.commit()
	}
}

// Flush implements exec.Home.
func (h *home) Flush() { h.t.commit() }

// bounds returns the bounds of a group's keys in [from, to); nil means no bound.
func (h *home) bounds(group int, from, to []byte) (lower, upper []byte) {
	lower = bytes.Clone(h.at(group, from))
	if to == nil {
		return lower, h.at(group+1, nil)
	}
	return lower, h.at(group, to)
}

// DeleteRange implements exec.Home.
func (h *home) DeleteRange(group int, from, to []byte) {
	lower, upper := h.bounds(group, from, to)
	h.t.p.fail(h.t.batch.DeleteRange(lower, upper, nil))
}

// Range implements exec.Home.
func (h *home) Range(group int, from, to []byte, f func(key, value []byte) bool) {
	lower, upper := h.bounds(group, from, to)
	it, err := h.t.p.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: bytes.Clone(upper)})
	if err != nil {
		h.t.p.fail(err)
		return
	}
	prefix := len(h.prefix) + 2
	for it.First(); it.Valid(); it.Next() {
		if !f(it.Key()[prefix:], it.Value()) {
			break
		}
	}
	h.t.p.fail(errors.Join(it.Error(), it.Close()))
}

// Drop implements exec.Home.
func (h *home) Drop(group int) {
	h.DeleteRange(group, nil, nil)
	h.t.commit()
}

// Limit implements exec.Home: the tables of all tasks that call it share half the memory.
func (h *home) Limit() int {
	if !h.counts {
		h.counts = true
		h.t.tables++
		h.t.p.tables.Add(1)
	}
	return h.t.p.memory / 2 / int(max(h.t.p.tables.Load(), 1))
}
