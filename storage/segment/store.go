package segment

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// Options configures a Store. The zero value suits a server.
type Options struct {
	// SegmentSize is the size of a segment's file, in bytes; a group that does not fit gets a
	// segment of its own size. Default 64 MiB, at most 1 GiB. Larger: fewer files and footers, but
	// trims free space in larger steps.
	SegmentSize int64
	// FirstSize is the size of a shard's first segment; each next one is twice as large until
	// SegmentSize is reached. A log opens a shard at every start, and a short-lived shard should
	// not need a large file. Default 4 MiB.
	FirstSize int64
	// Spare is the maximum number of files of deleted segments that are kept for reuse: overwriting
	// data that is in the page cache costs between a half and an eighth of writing to a growing
	// file. A new file is created only if no spare one exists, so segments and spare files together
	// are never more than the segments were at their maximum. Default 256; negative means none.
	// Tidy removes spare files that are not needed any more.
	Spare int
	// OpenFiles is the number of closed segments' files that are kept open for reading. Default 64.
	OpenFiles int
	// Grow lets segments grow as they are written. Without it they are filled with zeros
	// beforehand, which makes fdatasync 2 to 11 times faster but writes everything twice. Set Grow
	// if nothing waits for fdatasync.
	Grow bool
	// Salt returns a number that is different for each segment. Default: random.
	Salt func() uint64
	// Listed means that the directory has a list of its closed segments, which is then trusted.
	// Without it the list is built from the closed segments that are found, as for a directory that
	// is new or older than the list.
	Listed bool
	// Extent reads the extent of a segment from its footer. Without it the list does not contain
	// extents.
	Extent func(id ID, footer []byte) (Extent, error)
	// Damaged is called, concurrently and without locks, when a closed segment is first found to be
	// damaged. Damage that Open finds is in Segments instead.
	Damaged func(id ID, err error)
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

// State is the state of a segment.
type State uint8

// The states of a segment; see the package comment.
const (
	// StateOpen: being appended to, or full, or left in this state by a process that ended.
	StateOpen State = iota
	// StateClosed: has a footer and is never written again.
	StateClosed
	// StateDamaged: the file does not have this segment's header, and the list does not contain the
	// segment. Nothing can be read.
	StateDamaged
)

// Info describes a segment.
type Info struct {
	ID    ID
	State State
	// Used is the offset where the frames end and the footer starts, in bytes. It is known for
	// closed segments and for those that this Store writes.
	Used int64
	// Size is the length of the file in bytes.
	Size int64
	// Extent is the extent of a closed segment, if the list contains it.
	Extent Extent
	// Damage is the known damage of a closed segment's file: all or some of it cannot be read. It
	// is KindCorrupt and names file and offset.
	Damage error
	// Repaired names the parts of the file that were damaged when the store was opened and were
	// rewritten from the list, without loss. Empty: none.
	Repaired string
}

// Location is the place of a frame.
type Location struct {
	ID
	Offset, Size uint32 // in bytes, in the segment's file
	// Position is the position of the frame's group in its shard. A segment that was rewritten may
	// have another group at the offset.
	Position uint64
}

// End returns the offset after the frame.
func (l Location) End() int64 { return int64(l.Offset) + int64(l.Size) }

// Store is a directory of segments of any number of shards. All methods are safe for concurrent
// use. The directory must belong to one Store; the caller locks it (vfs.FS.Lock).
type Store struct {
	fs  vfs.FS
	dir string
	opt Options

	// listMu is held while the list is written. To close or delete a segment, a goroutine holds it
	// from before the change of the list until the segment's state has changed. Lock order: listMu,
	// then mu.
	listMu sync.Mutex
	list   list

	mu    sync.Mutex
	files map[ID]*file
	// highest is the highest number that a segment of each shard ever had. A Store never reuses a
	// number: a delayed call to close or delete a segment must not affect a new segment, when the
	// shard's segments were deleted and it is copied again.
	highest map[uint32]uint32
	spare   []spareFile // for reuse, the last one first
	least   int         // lowest number of spare files since the last Tidy
	full    bool        // the disk was full since the last Tidy: no file is kept
	spares  int         // counts names of spare files
	clock   uint64      // counts uses of files, for eviction
	opened  int         // closed segments whose file is open
	closed  bool
}

// file is a segment. All fields except name, id and salt are protected by Store.mu.
type file struct {
	id     ID
	salt   uint64
	state  State
	used   int64
	size   int64
	footer trailer
	f      vfs.File // nil if not open
	refs   int      // number of users of f, which must not be closed while they use it
	gone   bool     // deleted: the last release closes f
	last   uint64   // Store.clock at the last use

	// For closed segments:
	extent   Extent
	noFooter bool   // see entryNoFooter
	damage   error  // see Info
	absent   bool   // damaged so that nothing can be read
	repaired string // see Info
}

// enter adds a segment. The caller holds mu, or is the only user of the store.
func (s *Store) enter(seg *file) {
	s.files[seg.id] = seg
	s.highest[seg.id.Shard] = max(s.highest[seg.id.Shard], seg.id.Number)
}

// Segments returns all segments, ordered by ID.
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

func (f *file) info() Info {
	return Info{f.id, f.state, f.used, f.size, f.extent, f.damage, f.repaired}
}

// Disk returns the size of all segments and spare files on disk, in bytes.
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

// Read reads the frame at loc and decodes it into d. It uses buf if that is long enough and returns
// the buffer that d aliases. Errors: KindCorrupt, naming file and offset, if the frame is damaged;
// KindTrimmed if the segment was deleted.
func (s *Store) Read(loc Location, buf []byte, d *Decoded) ([]byte, error) {
	seg, err := s.acquire(loc.ID)
	if err != nil {
		return buf, err
	}
	defer s.release(seg)
	buf = slices.Grow(buf[:0], int(loc.Size))[:loc.Size]
	if err := s.readAt(seg, buf, int64(loc.Offset), "the frame"); err != nil {
		return buf, err
	}
	if err := d.Decode(buf, seg.salt); err != nil {
		return buf, s.damaged(seg, int64(loc.Offset), err)
	}
	if d.Position != loc.Position { // the file was rewritten since its footer was read
		return buf, s.corruptSegment(seg, int64(loc.Offset), fmt.Errorf("the group of position %d lies there, not that of %d", d.Position, loc.Position))
	}
	return buf, nil
}

// readAt fills b from an offset of an acquired segment. The error includes what, and is KindCorrupt
// if the file is too short or the disk cannot read it.
func (s *Store) readAt(seg *file, b []byte, off int64, what string) error {
	n, err := seg.f.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case err == io.EOF:
		return s.damaged(seg, off, fmt.Errorf("the file ends inside %s", what))
	case damaging(err):
		return s.damaged(seg, off, err)
	}
	return IOError("read", s.path(seg.id.fileName()), err)
}

// damaged returns a KindCorrupt error for damage at an offset, and records it if the segment is
// closed.
func (s *Store) damaged(seg *file, off int64, why error) error {
	err := s.corruptSegment(seg, off, why)
	s.mu.Lock()
	first := seg.state == StateClosed && seg.damage == nil && !seg.gone
	if first {
		seg.damage = err
	}
	s.mu.Unlock()
	if first && s.opt.Damaged != nil {
		s.opt.Damaged(seg.id, err)
	}
	return err
}

// Footer returns the footer of a closed segment. Errors as of Read, and KindInvalid for a segment
// that is not closed.
func (s *Store) Footer(id ID) ([]byte, error) {
	seg, err := s.acquire(id)
	if err != nil {
		return nil, err
	}
	defer s.release(seg)
	return s.footer(seg)
}

// footer reads the footer of an acquired segment.
func (s *Store) footer(seg *file) ([]byte, error) {
	s.mu.Lock()
	state, t, none := seg.state, seg.footer, seg.noFooter
	s.mu.Unlock()
	switch {
	case state != StateClosed:
		return nil, sharedlog.Errorf(sharedlog.KindInvalid, "segment %v is not closed", seg.id)
	case none:
		return nil, s.damaged(seg, int64(t.used), errNoFooter)
	}
	b := make([]byte, t.footerLen)
	if err := s.readAt(seg, b, int64(t.used), "the footer"); err != nil {
		return nil, err
	}
	if crc32.Checksum(b, codec.Castagnoli) != t.footerCRC {
		return nil, s.damaged(seg, int64(t.used), errors.New("the footer fails its checksum"))
	}
	return b, nil
}

var errNoFooter = errors.New("the segment's trailer was damaged before there was a list of closed segments")

// CloseSegment closes a segment. It makes the frames up to the offset used (Location.End of the
// last valid one) durable, writes the footer after them, cuts the file to that length, so that
// nothing after used can be read again, and adds the segment to the list. No Appender may still be
// writing to the segment. After an error the segment is still open and CloseSegment may be called
// again; KindFull means that the disk has no space for the footer.
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
	e, err := s.entryOf(seg, used, footer)
	if err != nil {
		return err
	}
	s.listMu.Lock()
	err = s.list.prepare()
	s.listMu.Unlock()
	if err != nil {
		return err
	}
	if err := s.finish(seg, id.fileName(), e.footer, footer); err != nil {
		return err
	}
	s.listMu.Lock()
	defer s.listMu.Unlock()
	s.mu.Lock()
	gone := seg.gone
	s.mu.Unlock()
	if gone { // deleted in the meantime, and must not be on the list
		return nil
	}
	if err := s.list.prepare(); err != nil { // others may have used the space
		return err
	}
	if err := s.list.note(e); err != nil {
		return err
	}
	s.mu.Lock()
	seg.state, seg.footer, seg.used, seg.size, seg.extent = StateClosed, e.footer, used, e.footer.size(), e.extent
	s.opened++
	s.mu.Unlock()
	return nil
}

// finish makes the frames of a segment's file durable, and then the footer and the trailer.
func (s *Store) finish(seg *file, name string, t trailer, footer []byte) error {
	name = s.path(name)
	end := int64(t.used) + int64(t.footerLen)
	// The trailer is written when everything that it refers to is durable: a power failure leaves
	// an open segment or a closed one.
	if _, err := seg.f.WriteAt(footer, int64(t.used)); err != nil {
		return IOError("write the footer of", name, err)
	}
	if err := seg.f.Sync(); err != nil {
		return IOError("sync", name, err)
	}
	if _, err := seg.f.WriteAt(t.append(nil, seg.salt), end); err != nil {
		return IOError("write the trailer of", name, err)
	}
	if err := seg.f.Truncate(t.size()); err != nil {
		return IOError("cut", name, err)
	}
	if err := seg.f.Sync(); err != nil {
		return IOError("sync", name, err)
	}
	return nil
}

// entryOf returns the entry on the list for a segment that is closed with a footer.
func (s *Store) entryOf(seg *file, used int64, footer []byte) (entry, error) {
	e := entry{kind: entryClosed, id: seg.id, salt: seg.salt, footer: trailer{uint32(used), uint32(len(footer)), crc32.Checksum(footer, codec.Castagnoli)}}
	if s.opt.Extent == nil {
		return e, nil
	}
	var err error
	e.extent, err = s.opt.Extent(seg.id, footer)
	return e, err
}

// Delete removes segments to which nothing is appended. It records the deletion on the list first.
// Reads in progress are not affected; later reads return KindTrimmed. The files may be kept for
// reuse.
func (s *Store) Delete(ids ...ID) error {
	s.listMu.Lock()
	defer s.listMu.Unlock()
	var segs []*file
	var entries []entry
	s.mu.Lock()
	for _, id := range ids {
		seg := s.files[id]
		if seg == nil || slices.Contains(segs, seg) {
			continue
		}
		segs = append(segs, seg)
		if e, ok := s.list.closed[id]; ok {
			entries = append(entries, entry{kind: entryDeleted, id: id, salt: e.salt})
		}
	}
	s.mu.Unlock()
	if len(segs) == 0 {
		return nil
	}
	if len(entries) > 0 {
		err := s.list.note(entries...)
		if sharedlog.KindOf(err) == sharedlog.KindFull && !s.opt.Listed && s.list.files[0] == nil {
			// The list is not trusted yet, and it does not exist: the next start builds it from the
			// segments that it finds.
			s.list.take(entries...)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	for _, seg := range segs {
		if err := s.drop(seg); err != nil {
			return err
		}
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return IOError("sync", s.dir, err)
	}
	for _, e := range entries {
		delete(s.list.deleted, e.id)
	}
	return nil
}

// drop removes a segment and releases its file for reuse.
func (s *Store) drop(seg *file) error {
	s.mu.Lock()
	delete(s.files, seg.id)
	if seg.f != nil && seg.state == StateClosed {
		s.opened--
	}
	busy := seg.refs > 0
	seg.gone = true
	f := seg.f
	if !busy {
		seg.f = nil
	}
	absent := seg.absent
	s.mu.Unlock()
	if !busy && f != nil {
		if err := f.Close(); err != nil {
			return IOError("close", s.path(seg.id.fileName()), err)
		}
	}
	name := s.path(seg.id.fileName())
	if absent { // there is no file, or it belongs to another segment
		return nil
	}
	if busy { // a reader would see the next content of the file
		if err := s.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return IOError("remove", name, err)
		}
		return nil
	}
	return s.makeSpare(name, seg.size)
}

// makeSpare makes a file a spare one, or removes it.
func (s *Store) makeSpare(path string, size int64) error {
	spare := spareFile{s.spareName(), size}
	err := s.fs.Rename(path, s.path(spare.name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed already
	}
	if err != nil {
		return IOError("rename", path, err)
	}
	if err := s.keepOrRemove(spare); err != nil {
		return IOError("remove", s.path(spare.name), err)
	}
	return nil
}

// Sync makes the data of an open segment durable that another process has written.
func (s *Store) Sync(id ID) error {
	seg, err := s.acquire(id)
	if err != nil {
		return err
	}
	defer s.release(seg)
	if err := seg.f.Sync(); err != nil {
		return IOError("sync", s.path(id.fileName()), err)
	}
	return nil
}

// SetAside renames the file of a segment that is not closed, so that only an operator finds it: the
// file is damaged, and it is not known to hold records with effect.
func (s *Store) SetAside(id ID) (name string, err error) {
	s.listMu.Lock()
	defer s.listMu.Unlock()
	s.mu.Lock()
	seg := s.files[id]
	if seg == nil || seg.state == StateClosed || seg.refs > 0 {
		s.mu.Unlock()
		return "", sharedlog.Errorf(sharedlog.KindInvalid, "segment %v is closed, in use, or not there", id)
	}
	delete(s.files, id)
	seg.gone = true
	f := seg.f
	seg.f = nil
	s.mu.Unlock()
	if f != nil {
		_ = f.Close() // it was only read
	}
	old := s.path(id.fileName())
	name = old + "-damaged"
	if err := s.fs.Rename(old, name); err != nil {
		return "", IOError("rename", old, err)
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return "", IOError("sync", s.dir, err)
	}
	return name, nil
}

// TidyEvery is the interval at which the owner of a long-lived store calls Tidy. It is longer than
// a cycle of reuse, such as the time between two snapshots.
const TidyEvery = 20 * time.Second

// FS returns the file system of the store for other files on the disk: before a write fails because
// the disk is full, the spare files are removed.
func (s *Store) FS() vfs.FS { return s.fs }

// GiveWay removes all spare files because the disk is full, and keeps none until the next Tidy,
// since the space that trims free is needed elsewhere. It returns false if there was no spare file.
func (s *Store) GiveWay() bool {
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
	surplus := slices.Clone(s.spare[:n]) // files at the end are used first
	s.spare = slices.Delete(s.spare, 0, n)
	s.least = len(s.spare)
	s.mu.Unlock()
	return s.removeSpare(surplus)
}

func (s *Store) removeSpare(files []spareFile) error {
	for _, f := range files {
		if err := s.fs.Remove(s.path(f.name)); err != nil {
			return IOError("remove", s.path(f.name), err)
		}
	}
	return nil
}

// Close closes all files, and keeps few spare ones. Appenders must have been closed before, and
// only reads may be in progress: they complete, and later ones return KindClosed.
func (s *Store) Close() error {
	s.listMu.Lock()
	s.list.close()
	s.listMu.Unlock()
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

// acquire returns a segment with its file open; the caller calls release.
func (s *Store) acquire(id ID) (*file, error) {
	s.mu.Lock()
	seg := s.files[id]
	var err error
	switch {
	case s.closed:
		err = sharedlog.Errorf(sharedlog.KindClosed, "segments in %s", s.dir)
	case seg == nil:
		err = sharedlog.Errorf(sharedlog.KindTrimmed, "segment %v is not there any more", id)
	case seg.absent:
		err = seg.damage
	case seg.state == StateDamaged:
		err = s.corrupt(id, 0, errNoHeader)
	case seg.f == nil:
		err = s.openFile(seg)
	}
	if err == nil {
		seg.refs++
		s.clock++
		seg.last = s.clock
	}
	s.mu.Unlock()
	if err != nil && seg != nil && seg.state == StateClosed && damaging(err) {
		err = s.damaged(seg, 0, err)
	}
	return seg, err
}

// openFile opens a segment's file. The caller holds mu.
func (s *Store) openFile(seg *file) error {
	open := s.fs.Open
	if seg.state == StateOpen {
		open = s.fs.OpenReadWrite // to be closed with a footer
	}
	f, err := open(s.path(seg.id.fileName()))
	if err != nil {
		return IOError("open", s.path(seg.id.fileName()), err)
	}
	seg.f = f
	if seg.state == StateClosed {
		s.opened++
	}
	return nil
}

// unsettled reports whether a sync of a segment can have an effect: CloseSegment has synced a
// closed one, and a deleted one has nothing to save.
func (s *Store) unsettled(seg *file) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return seg.state == StateOpen && !seg.gone
}

// holdUnsettled acquires an unsettled segment, whose file has been open since it was created. It
// returns false for other segments.
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
		// The file was removed and has only been read since: an error is irrelevant.
		_ = seg.f.Close()
		seg.f = nil
	}
	s.evict()
}

// evict closes the files of closed segments that have been idle longest until at most
// Options.OpenFiles are open, or all open ones are in use. The caller holds mu.
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

// corruptSegment is corrupt for a closed segment: the error includes what the segment holds.
func (s *Store) corruptSegment(seg *file, off int64, why error) error {
	if x := seg.extent; x.End > 0 {
		why = fmt.Errorf("%w; the segment holds LSNs %d to %d", why, x.First, x.End-1)
	}
	return s.corrupt(seg.id, off, why)
}

// IOError returns an error of the file system as a log error: of KindFull if the disk is full. what
// says what was to be done to the file.
func IOError(what, name string, err error) error {
	kind := sharedlog.KindOther
	if vfs.Full(err) {
		kind = sharedlog.KindFull
	}
	return sharedlog.Errorf(kind, "%s %s: %w", what, name, err)
}

// damaging reports whether an error of the file system means that a file, or a part of it, is lost.
func damaging(err error) bool { return errors.Is(err, syscall.EIO) || errors.Is(err, fs.ErrNotExist) }

func isSpare(name string) bool {
	var n int
	_, err := fmt.Sscanf(name, "spare-%d", &n)
	return err == nil
}

func corrupt(path string, off int64, why error) error {
	return sharedlog.Errorf(sharedlog.KindCorrupt, "%s, offset %d: %w", path, off, why)
}
