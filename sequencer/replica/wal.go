package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

const (
	recordHead  = 21
	recordMagic = 0x4c415754 // "TWAL"

	kindSnapshot = 1
	kindState    = 2
	kindEntry    = 3
)

// wal is the log of a replica on disk. See the package comment. Only run of a Job may run on
// another goroutine than the Replica's methods.
type wal struct {
	fs     vfs.FS
	dir    string
	number uint64
	f      vfs.File
	off    int64
	synced int64
	room   int64 // offset up to which the file is filled with zeros
	ahead  int64 // number of zeros written at a time
	base   int64 // size of the snapshot at the start of the file
	keep   int64 // size of older files that are kept
	buf    []byte

	next *nextFile // in progress; nil: none
	old  vfs.File  // if not nil, f has no name yet, and old is the newest file with a name
}

// nextFile is a file that will replace the one in use.
type nextFile struct {
	wal   *wal
	later []saved // written to the file in use since the start
}

// saved is the content of a wal.
type saved struct {
	snapshot *raftpb.Snapshot
	state    *raftpb.HardState
	entries  []*raftpb.Entry
}

// temporary is the name of a file until it is complete.
const temporary = "wal-new"

func walNumber(name string) (n uint64, ok bool) {
	_, err := fmt.Sscanf(name, "wal-%08d", &n)
	return n, err == nil && name == walName(n)
}

func walName(number uint64) string { return fmt.Sprintf("wal-%08d", number) }

func (w *wal) path(name string) string { return filepath.Join(w.dir, name) }

// Exists reports whether a directory contains a replica's log. The directory must exist.
func Exists(fs vfs.FS, dir string) (bool, error) {
	names, err := fs.List(dir)
	for _, name := range names {
		if _, ok := walNumber(name); ok {
			return true, err
		}
	}
	return false, err
}

// openWAL reads the log. In an empty directory it creates the first file, with the given snapshot.
func openWAL(fs vfs.FS, dir string, ahead, keep int64, first *raftpb.Snapshot) (*wal, *saved, error) {
	if err := fs.MkdirAll(dir); err != nil {
		return nil, nil, err
	}
	names, err := fs.List(dir)
	if err != nil {
		return nil, nil, err
	}
	w := &wal{fs: fs, dir: dir, ahead: ahead, keep: keep}
	for _, name := range names {
		if name == temporary {
			if err := fs.Remove(w.path(name)); err != nil {
				return nil, nil, err
			}
		}
		if n, ok := walNumber(name); ok {
			w.number = max(w.number, n)
		}
	}
	if w.number == 0 {
		term, commit := first.GetMetadata().GetTerm(), first.GetMetadata().GetIndex()
		s := &saved{snapshot: first, state: &raftpb.HardState{Term: &term, Commit: &commit}}
		return w, s, w.replace(s)
	}
	s, err := w.read()
	if err != nil {
		return nil, nil, err
	}
	_, err = w.prune(w.number, w.keep)
	return w, s, err
}

// read opens the newest file and returns its content.
func (w *wal) read() (*saved, error) {
	path := w.path(walName(w.number))
	f, err := w.fs.OpenReadWrite(path)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, f.Close())
	}
	s := &saved{}
	off, err := s.parse(b)
	if err == nil && s.snapshot == nil {
		err = sharedlog.Errorf(sharedlog.KindCorrupt, "it does not start with a snapshot")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w; restore the directory from a copy, or replace this sequencer", path, err), f.Close())
	}
	_, _, _, base := record(b)
	w.f, w.off, w.base = f, int64(off), int64(base)
	// Cut off a torn record, and make the rest durable before anything is written after it.
	if err := errors.Join(f.Truncate(w.off), f.Sync()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w.synced, w.room = w.off, w.off
	return s, nil
}

// parse decodes the records in b until one is invalid, and returns where they end.
func (s *saved) parse(b []byte) (off int, err error) {
	for {
		kind, payload, _, n := record(b[off:])
		if n == 0 {
			return off, intact(b[off:], off)
		}
		if err := s.take(kind, payload); err != nil {
			return off, sharedlog.Errorf(sharedlog.KindCorrupt, "record at offset %d: %v", off, err)
		}
		off += n
	}
}

// intact returns an error if a record after the damage shows that the damaged part was durable.
func intact(rest []byte, off int) error {
	for i := 1; i < len(rest); i++ {
		if _, _, synced, n := record(rest[i:]); n > 0 && synced > uint64(off) {
			return sharedlog.Errorf(sharedlog.KindCorrupt, "damage at offset %d, below what was durable (%d)", off, synced)
		}
	}
	return nil
}

// record returns the record at the start of b and its length, 0 if there is none.
func record(b []byte) (kind byte, payload []byte, synced uint64, n int) {
	if len(b) < recordHead || binary.LittleEndian.Uint32(b[4:]) != recordMagic {
		return 0, nil, 0, 0
	}
	size := int(binary.LittleEndian.Uint32(b[8:]))
	if size > len(b)-recordHead {
		return 0, nil, 0, 0
	}
	n = recordHead + size
	if crc32.Checksum(b[4:n], codec.Castagnoli) != binary.LittleEndian.Uint32(b) {
		return 0, nil, 0, 0
	}
	return b[20], b[recordHead:n], binary.LittleEndian.Uint64(b[12:]), n
}

func (s *saved) take(kind byte, payload []byte) error {
	switch kind {
	case kindSnapshot:
		s.snapshot = new(raftpb.Snapshot)
		return proto.Unmarshal(payload, s.snapshot)
	case kindState:
		s.state = new(raftpb.HardState)
		return proto.Unmarshal(payload, s.state)
	case kindEntry:
		e := new(raftpb.Entry)
		if err := proto.Unmarshal(payload, e); err != nil {
			return err
		}
		// An entry replaces the earlier ones from its index on.
		next := s.snapshot.GetMetadata().GetIndex() + 1
		if e.GetIndex() < next || e.GetIndex() > next+uint64(len(s.entries)) {
			return fmt.Errorf("entry %d does not follow %d entries behind %d", e.GetIndex(), len(s.entries), next-1)
		}
		s.entries = append(s.entries[:e.GetIndex()-next], e)
		return nil
	}
	return fmt.Errorf("kind %d", kind)
}

func (w *wal) add(kind byte, m proto.Message) error {
	at := len(w.buf)
	w.buf = append(w.buf, make([]byte, recordHead)...)
	var err error
	if w.buf, err = (proto.MarshalOptions{}).MarshalAppend(w.buf, m); err != nil {
		return err
	}
	r := w.buf[at:]
	binary.LittleEndian.PutUint32(r[4:], recordMagic)
	binary.LittleEndian.PutUint32(r[8:], uint32(len(r)-recordHead))
	binary.LittleEndian.PutUint64(r[12:], uint64(w.synced))
	r[20] = kind
	binary.LittleEndian.PutUint32(r, crc32.Checksum(r[4:], codec.Castagnoli))
	return nil
}

// append writes a hard state and entries, without waiting for the disk.
func (w *wal) append(state *raftpb.HardState, entries []*raftpb.Entry) error {
	if w.next != nil {
		w.next.later = append(w.next.later, saved{state: state, entries: entries})
	}
	w.buf = w.buf[:0]
	for _, e := range entries {
		if err := w.add(kindEntry, e); err != nil {
			return err
		}
	}
	if !raft.IsEmptyHardState(state) {
		if err := w.add(kindState, state); err != nil {
			return err
		}
	}
	return w.flush()
}

// flush writes the buffer.
func (w *wal) flush() error {
	if err := w.ensure(int64(len(w.buf))); err != nil {
		return err
	}
	if len(w.buf) > 0 {
		if _, err := w.f.WriteAt(w.buf, w.off); err != nil {
			return err
		}
		w.off += int64(len(w.buf))
	}
	return nil
}

// ensure extends the file with zeros to have space for n bytes: a sync of a growing file also
// writes the file's length, which costs several times as much.
func (w *wal) ensure(n int64) error {
	if w.ahead <= 0 || w.room-w.off >= n {
		return nil
	}
	zeros := make([]byte, w.ahead)
	for w.room = max(w.room, w.off); w.room-w.off < n; w.room += w.ahead {
		if _, err := w.f.WriteAt(zeros, w.room); err != nil {
			return err
		}
	}
	return nil
}

// sync returns a job that makes durable what has been written so far. It may run concurrently with
// further appends and with the job of begin, but not with another sync.
func (w *wal) sync() *Job {
	f, off, old, number := w.f, w.off, w.old, w.number
	return &Job{
		run: func() error {
			if err := f.Sync(); err != nil || old == nil {
				return err
			}
			return w.name(number, old)
		},
		done: func() error {
			if w.number == number {
				w.synced, w.old = off, nil
			}
			return nil
		},
	}
}

// name renames the new file, which is durable, and removes older ones. It syncs the old file first,
// which becomes history: a power failure may tear unsynced records, and a View reports a torn
// record of an older file as damage.
func (w *wal) name(number uint64, old vfs.File) error {
	if old != nil {
		if err := old.Sync(); err != nil {
			return err
		}
	}
	if err := w.fs.Rename(w.path(temporary), w.path(walName(number))); err != nil {
		return err
	}
	if err := w.fs.SyncDir(w.dir); err != nil {
		return err
	}
	if old != nil {
		if err := old.Close(); err != nil {
			return err
		}
	}
	_, err := w.prune(number, w.keep)
	return err
}

// mayBegin reports whether the file in use has its name, and no other one is being created.
func (w *wal) mayBegin() bool { return w.next == nil && w.old == nil }

// begin returns a job that creates a new file, which contains all of s. When the job is done the
// wal writes to the new file. Until a sync has made that durable and renamed it, the older file is
// read after a crash.
func (w *wal) begin(s *saved) *Job {
	next := &nextFile{wal: &wal{fs: w.fs, dir: w.dir, ahead: w.ahead, keep: w.keep, number: w.number + 1}}
	w.next = next
	return &Job{
		run: func() error {
			if err := next.wal.create(s); err != nil {
				return err
			}
			return next.wal.f.Sync()
		},
		done: func() error {
			if w.next != next {
				return nil // abandoned
			}
			w.next = nil
			n := next.wal
			n.synced = 0 // no record has stated yet that it is durable
			for _, l := range next.later {
				if err := n.append(l.state, l.entries); err != nil {
					return err
				}
			}
			w.old = w.f
			w.number, w.f, w.off, w.synced, w.room, w.base = n.number, n.f, n.off, n.synced, n.room, n.base
			return nil
		},
	}
}

// replace continues in a new file, which contains all of s, and waits for the disk. No job may be
// in progress.
func (w *wal) replace(s *saved) error {
	old := w.f
	if w.next != nil {
		if w.next.wal.f != nil {
			if err := w.next.wal.f.Close(); err != nil {
				return err
			}
		}
		w.next = nil
	}
	if w.old != nil { // f never got its name
		if err := w.f.Close(); err != nil {
			return err
		}
		old, w.old = w.old, nil
		w.number--
	}
	w.number++
	w.off, w.synced, w.room = 0, 0, 0
	if err := w.create(s); err != nil {
		return err
	}
	if err := w.f.Sync(); err != nil {
		return err
	}
	w.synced = w.off
	return w.name(w.number, old)
}

// create creates the file and writes all of s.
func (w *wal) create(s *saved) (err error) {
	if w.f, err = w.fs.Create(w.path(temporary)); err != nil {
		return err
	}
	w.buf = w.buf[:0]
	if err := w.add(kindSnapshot, s.snapshot); err != nil {
		return err
	}
	if _, err := w.f.WriteAt(w.buf, 0); err != nil {
		return err
	}
	w.off = int64(len(w.buf))
	w.base = w.off
	return w.append(s.state, s.entries)
}

// prune removes files older than number, the oldest first, until the remaining ones have at most
// keep bytes. It reports whether it removed any.
func (w *wal) prune(number uint64, keep int64) (removed bool, err error) {
	names, err := w.fs.List(w.dir)
	if err != nil {
		return false, err
	}
	var older []string
	sum := int64(0)
	for _, name := range names { // ascending
		if n, ok := walNumber(name); ok && n < number {
			older = append(older, name)
		}
	}
	for _, name := range slices.Backward(older) {
		size, err := w.fs.Stat(w.path(name))
		if err != nil {
			return removed, err
		}
		if sum += size; sum <= keep {
			continue
		}
		if err := w.fs.Remove(w.path(name)); err != nil {
			return removed, err
		}
		removed = true
	}
	return removed, nil
}

// close closes the files. No job may be in progress.
func (w *wal) close() error {
	err := w.f.Close()
	if w.old != nil {
		err = errors.Join(err, w.old.Close())
	}
	if w.next != nil && w.next.wal.f != nil {
		err = errors.Join(err, w.next.wal.f.Close())
	}
	return err
}
