package segment

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// Options of a Store. The zero value is right for a server.
type Options struct {
	// SegmentSize is how long a segment's file becomes, in bytes; a group that
	// does not fit gets a segment of its own size. Default 64 MiB, at most
	// 1 GiB. Larger: fewer files and footers; trim frees space in larger steps.
	SegmentSize int64
	// FirstSize is the size of a shard's first segment; each next one is twice
	// as long until SegmentSize is reached. A log opens a shard at every start,
	// and a short life shall not cost a long file. Default 4 MiB.
	FirstSize int64
	// Spare is how many deleted segments' files are kept at most to be used
	// again: to write over what the page cache has costs a half to an eighth of
	// writing to a file that grows. They come out of what was there before: a
	// file is made only when none is spare, so segments and spare files together
	// are never more than the segments were at their most. Default 256; negative
	// means none. Tidy removes what is not needed any more.
	Spare int
	// OpenFiles is how many closed segments' files are kept open for reading.
	// Default 64.
	OpenFiles int
	// Grow leaves segments to grow as they are written. Without it they are
	// filled with zeros beforehand, which makes fdatasync 2 to 11 times faster
	// and writes everything twice: right with Grow when nobody waits for
	// fdatasync.
	Grow bool
	// Salt returns a number that no other segment has. Default: random.
	Salt func() uint64
}

func (o Options) withDefaults() Options {
	o.SegmentSize = min(cmp.Or(o.SegmentSize, 64<<20), 1<<30)
	o.FirstSize = min(cmp.Or(o.FirstSize, 4<<20), o.SegmentSize)
	o.Spare = max(cmp.Or(o.Spare, 256), 0)
	o.OpenFiles = cmp.Or(o.OpenFiles, 64)
	if o.Salt == nil {
		o.Salt = func() uint64 {
			var b [8]byte
			rand.Read(b[:]) // never fails
			return binary.LittleEndian.Uint64(b[:])
		}
	}
	return o
}

// State is where a segment is in its life.
type State uint8

// The states of a segment; see the package comment.
const (
	// StateOpen: appended to, or full, or left so by a process that ended.
	StateOpen State = iota
	// StateClosed: has a footer and is never written again.
	StateClosed
	// StateDamaged: the file's header is not this segment's. Nothing can be read.
	StateDamaged
)

// Info describes a segment.
type Info struct {
	ID    ID
	State State
	// Used is where the frames end and the footer begins, in bytes; known of
	// closed segments and of those written by this Store.
	Used int64
	// Size is the length of the file in bytes.
	Size int64
}

// Location says where a frame lies.
type Location struct {
	ID
	Offset, Size uint32 // in bytes, in the segment's file
}

// End returns the offset behind the frame.
func (l Location) End() int64 { return int64(l.Offset) + int64(l.Size) }

// Store is a directory of segments, of any number of shards. All methods are
// safe for concurrent use. The directory must belong to one Store (vfs.FS.Lock
// is the caller's).
type Store struct {
	fs  vfs.FS
	dir string
	opt Options

	mu    sync.Mutex
	files map[ID]*file
	// highest is the highest number that a segment of a shard ever had. No number is
	// used again in the life of a Store: who was told to close or to delete a segment
	// may come late, when the shard's were deleted and it is copied anew.
	highest map[uint32]uint32
	spare   []spareFile // to be used again, the last one first
	least   int         // how many were always there since the last Tidy
	full    bool        // the disk was, since the last Tidy: no file is kept
	spares  int         // counts names given to spare files
	clock   uint64      // counts uses of files, for eviction
	opened  int         // closed segments whose file is open
	closed  bool
}

// file is a segment. Fields but name, id and salt are guarded by Store.mu.
type file struct {
	id     ID
	salt   uint64
	state  State
	used   int64
	size   int64
	footer trailer
	f      vfs.File // nil if not open
	refs   int      // f is in use and must not be closed
	gone   bool     // deleted: close f at the last release
	last   uint64   // Store.clock at the last use
}

// Open opens the segments in a directory, which is made if it is not there. It
// reads two blocks of each file. Errors: KindVersion, or what the file system
// said.
func Open(fsys vfs.FS, dir string, o Options) (*Store, error) {
	s := &Store{dir: dir, opt: o.withDefaults(), files: map[ID]*file{}, highest: map[uint32]uint32{}}
	s.fs = vfs.GiveWay(fsys, s.giveWay)
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, ioError("make", dir, err)
	}
	names, err := fsys.List(dir)
	if err != nil {
		return nil, ioError("list", dir, err)
	}
	for _, name := range names {
		if id, ok := parseName(name); ok {
			if err := s.look(id); err != nil {
				return nil, err
			}
		} else if isSpare(name) {
			size, err := fsys.Stat(s.path(name))
			if err != nil {
				return nil, ioError("stat", s.path(name), err)
			}
			if err := s.keepOrRemove(spareFile{name, size}); err != nil {
				return nil, ioError("remove", s.path(name), err)
			}
		}
	}
	return s, nil
}

// look enters the file of a segment that was there at Open.
func (s *Store) look(id ID) error {
	name := s.path(id.fileName())
	f, err := s.fs.Open(name)
	if err != nil {
		return ioError("open", name, err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return ioError("stat", name, err)
	}
	seg := &file{id: id, size: size}
	seg.salt, err = readHeader(f, id)
	switch {
	case errors.Is(err, errNoHeader):
		seg.state = StateDamaged
	case errors.Is(err, errVersion):
		return sharedlog.Errorf(sharedlog.KindVersion, "%s: %w", name, err)
	case err != nil:
		return ioError("read", name, err)
	default:
		t, ok, err := readTrailer(f, size, seg.salt)
		if err != nil {
			return ioError("read", name, err)
		}
		if ok {
			seg.state, seg.footer, seg.used = StateClosed, t, int64(t.used)
		}
	}
	s.enter(seg)
	return nil
}

// enter makes a file one of the segments; mu is held, or nobody else knows the store.
func (s *Store) enter(seg *file) {
	s.files[seg.id] = seg
	s.highest[seg.id.Shard] = max(s.highest[seg.id.Shard], seg.id.Number)
}

// Segments returns all segments in the order of their IDs.
func (s *Store) Segments() []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Info
	for _, seg := range s.files {
		all = append(all, seg.info())
	}
	slices.SortFunc(all, func(a, b Info) int { return a.ID.Compare(b.ID) })
	return all
}

func (f *file) info() Info { return Info{f.id, f.state, f.used, f.size} }

// Disk returns the bytes on disk of all files, spare ones included.
func (s *Store) Disk() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum int64
	for _, f := range s.spare {
		sum += f.size
	}
	for _, seg := range s.files {
		sum += seg.size
	}
	return sum
}

// Read reads the frame at loc and decodes it into d. It uses buf if that is long
// enough and returns the buffer that d aliases. Errors: KindCorrupt, naming file
// and offset, if the frame is damaged; KindTrimmed if the segment was deleted.
func (s *Store) Read(loc Location, buf []byte, d *Decoded) ([]byte, error) {
	seg, err := s.acquire(loc.ID)
	if err != nil {
		return buf, err
	}
	defer s.release(seg)
	buf = slices.Grow(buf[:0], int(loc.Size))[:loc.Size]
	if n, err := seg.f.ReadAt(buf, int64(loc.Offset)); n < len(buf) {
		if err != io.EOF {
			return buf, ioError("read", s.path(loc.fileName()), err)
		}
		return buf, s.corrupt(loc.ID, int64(loc.Offset), errors.New("the file ends inside the frame"))
	}
	if err := d.Decode(buf, seg.salt); err != nil {
		return buf, s.corrupt(loc.ID, int64(loc.Offset), err)
	}
	return buf, nil
}

// Footer returns the footer of a closed segment. Errors as Read's, and
// KindInvalid for a segment that is not closed.
func (s *Store) Footer(id ID) ([]byte, error) {
	seg, err := s.acquire(id)
	if err != nil {
		return nil, err
	}
	defer s.release(seg)
	s.mu.Lock()
	state, t := seg.state, seg.footer
	s.mu.Unlock()
	if state != StateClosed {
		return nil, sharedlog.Errorf(sharedlog.KindInvalid, "segment %v is not closed", id)
	}
	b := make([]byte, t.footerLen)
	if n, err := seg.f.ReadAt(b, int64(t.used)); n < len(b) {
		return nil, ioError("read", s.path(id.fileName()), err)
	}
	if crc32.Checksum(b, castagnoli) != t.footerCRC {
		return nil, s.corrupt(id, int64(t.used), errors.New("the footer does not check"))
	}
	return b, nil
}

// CloseSegment ends a segment: frames up to the offset used (Location.End of the
// last one that counts) are made durable, the footer is put behind them, and
// the file is cut to that length, so that nothing behind used is ever seen
// again. A segment that an Appender is still writing to must not be closed. If
// it fails the segment is as open as before and it may be tried again;
// KindFull says that the disk has no room for the footer.
func (s *Store) CloseSegment(id ID, used int64, footer []byte) error {
	seg, err := s.acquire(id)
	if err != nil {
		return err
	}
	defer s.release(seg)
	s.mu.Lock()
	state, size := seg.state, seg.size
	s.mu.Unlock()
	if state != StateOpen {
		return sharedlog.Errorf(sharedlog.KindInvalid, "segment %v is not open", id)
	}
	if used < HeaderSize || used > size {
		return sharedlog.Errorf(sharedlog.KindInvalid, "segment %v does not have %d bytes", id, used)
	}
	t := trailer{uint32(used), uint32(len(footer)), crc32.Checksum(footer, castagnoli)}
	end := used + int64(len(footer))
	name := s.path(id.fileName())
	// The trailer is written when all it speaks of is durable: a power cut
	// leaves an open segment or a closed one.
	if _, err := seg.f.WriteAt(footer, used); err != nil {
		return ioError("write the footer of", name, err)
	}
	if err := seg.f.Sync(); err != nil {
		return ioError("sync", name, err)
	}
	if _, err := seg.f.WriteAt(t.append(nil, seg.salt), end); err != nil {
		return ioError("write the trailer of", name, err)
	}
	if err := seg.f.Truncate(end + trailerSize); err != nil {
		return ioError("cut", name, err)
	}
	if err := seg.f.Sync(); err != nil {
		return ioError("sync", name, err)
	}
	s.mu.Lock()
	seg.state, seg.footer, seg.used, seg.size = StateClosed, t, used, end+trailerSize
	if !seg.gone {
		s.opened++
	}
	s.mu.Unlock()
	return nil
}

// Delete removes a segment that nothing is appended to. Reads that are under
// way end as if it were there; later ones fail with KindTrimmed. Its file may
// be kept to be used again.
func (s *Store) Delete(id ID) error {
	s.mu.Lock()
	seg := s.files[id]
	if seg == nil {
		s.mu.Unlock()
		return nil
	}
	delete(s.files, id)
	if seg.f != nil && seg.state == StateClosed {
		s.opened--
	}
	busy := seg.refs > 0
	seg.gone = true
	f := seg.f
	if !busy {
		seg.f = nil
	}
	s.mu.Unlock()
	if !busy && f != nil {
		if err := f.Close(); err != nil {
			return ioError("close", s.path(id.fileName()), err)
		}
	}
	name := id.fileName()
	if !busy { // or a reader would see the file's next life
		spare := spareFile{s.spareName(), seg.size}
		if err := s.fs.Rename(s.path(name), s.path(spare.name)); err != nil {
			return ioError("rename", s.path(name), err)
		}
		if err := s.keepOrRemove(spare); err != nil {
			return ioError("remove", s.path(spare.name), err)
		}
	} else if err := s.fs.Remove(s.path(name)); err != nil {
		return ioError("remove", s.path(name), err)
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return ioError("sync", s.dir, err)
	}
	return nil
}

// TidyEvery is how often whoever keeps a store for long calls Tidy: longer than what
// goes round in it takes, such as the time from one snapshot to the next.
const TidyEvery = 20 * time.Second

// FS returns the store's file system for what else is kept beside it: before a write to
// it fails because the disk is full, the spare files are removed.
func (s *Store) FS() vfs.FS { return s.fs }

// giveWay removes all spare files because the disk is full, and lets none be kept until
// the next Tidy: what is trimmed now is wanted by others. False: there was none.
func (s *Store) giveWay() bool {
	s.mu.Lock()
	s.full = true
	spare := s.spare
	s.spare, s.least = nil, 0
	s.mu.Unlock()
	return len(spare) > 0 && s.removeSpare(spare) == nil
}

// Tidy removes the spare files that were not needed since the last Tidy.
func (s *Store) Tidy() error {
	s.mu.Lock()
	s.full = false
	n := min(s.least, max(len(s.spare)-atHand, 0))
	surplus := slices.Clone(s.spare[:n]) // the last ones are used first
	s.spare = slices.Delete(s.spare, 0, n)
	s.least = len(s.spare)
	s.mu.Unlock()
	return s.removeSpare(surplus)
}

func (s *Store) removeSpare(files []spareFile) error {
	for _, f := range files {
		if err := s.fs.Remove(s.path(f.name)); err != nil {
			return ioError("remove", s.path(f.name), err)
		}
	}
	return nil
}

// Close closes all files, and keeps few spare ones. Appenders must have been
// closed before, and nothing but reads may be under way: they end as if the store were
// open, and later ones fail with KindClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	n := max(len(s.spare)-atHand, 0)
	errs := []error{s.removeSpare(s.spare[:n])}
	s.spare = s.spare[n:]
	for _, id := range slices.SortedFunc(maps.Keys(s.files), ID.Compare) {
		seg := s.files[id]
		if seg.refs > 0 {
			seg.gone = true // the last reader closes it
		} else if seg.f != nil {
			errs = append(errs, seg.f.Close())
			seg.f = nil
		}
	}
	return errors.Join(errs...)
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// acquire returns a segment with its file open, to be given to release.
func (s *Store) acquire(id ID) (*file, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg := s.files[id]
	switch {
	case s.closed:
		return nil, sharedlog.Errorf(sharedlog.KindClosed, "segments in %s", s.dir)
	case seg == nil:
		return nil, sharedlog.Errorf(sharedlog.KindTrimmed, "segment %v is not there any more", id)
	case seg.state == StateDamaged:
		return nil, s.corrupt(id, 0, errNoHeader)
	}
	if seg.f == nil {
		open := s.fs.Open
		if seg.state == StateOpen {
			open = s.fs.OpenReadWrite // to be closed
		}
		f, err := open(s.path(id.fileName()))
		if err != nil {
			return nil, ioError("open", s.path(id.fileName()), err)
		}
		seg.f = f
		if seg.state == StateClosed {
			s.opened++
		}
	}
	seg.refs++
	s.clock++
	seg.last = s.clock
	return seg, nil
}

// unsettled tells whether a sync may do anything for a segment: closing it has
// synced it, and of a deleted one nothing is left to save.
func (s *Store) unsettled(seg *file) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return seg.state == StateOpen && !seg.gone
}

// holdUnsettled is acquire for an unsettled segment, whose file is open since it
// was made; of others it says false.
func (s *Store) holdUnsettled(seg *file) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seg.state != StateOpen || seg.gone {
		return false
	}
	seg.refs++
	return true
}

func (s *Store) release(seg *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.refs--
	if seg.gone && seg.refs == 0 {
		// Removed, and only read since: nothing that an error of close could
		// tell is of interest to anybody.
		_ = seg.f.Close()
		seg.f = nil
	}
	s.evict()
}

// evict closes the files of closed segments that have been idle longest until no
// more than Options.OpenFiles are open, or all are in use. Called with mu held.
func (s *Store) evict() {
	for s.opened > s.opt.OpenFiles {
		var oldest *file
		for _, seg := range s.files {
			if seg.f != nil && seg.state == StateClosed && seg.refs == 0 && (oldest == nil || seg.last < oldest.last) {
				oldest = seg
			}
		}
		if oldest == nil {
			return
		}
		_ = oldest.f.Close() // everything in it is durable
		oldest.f = nil
		s.opened--
	}
}

func (s *Store) corrupt(id ID, off int64, why error) error {
	return corrupt(s.path(id.fileName()), off, why)
}

// ioError gives an error of the file system the kind that a caller asks for.
func ioError(what, name string, err error) error {
	kind := sharedlog.KindOther
	if vfs.Full(err) {
		kind = sharedlog.KindFull
	}
	return sharedlog.Errorf(kind, "%s %s: %w", what, name, err)
}

func isSpare(name string) bool {
	var n int
	_, err := fmt.Sscanf(name, "spare-%d", &n)
	return err == nil
}

func corrupt(path string, off int64, why error) error {
	return sharedlog.Errorf(sharedlog.KindCorrupt, "%s, offset %d: %w", path, off, why)
}
