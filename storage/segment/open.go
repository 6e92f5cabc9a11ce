package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// Open opens the segments in a directory, and creates the directory if it does not exist. It reads
// two blocks of each file.
//
// The list, not the file, determines what a closed segment is: Open compares the file's header and
// trailer with the list and rewrites them if they differ, provided that the footer is intact where
// the list says that it is (Info.Repaired). Segments that are damaged otherwise, or missing, are
// among the store's segments, with Info.Damage. Open removes only files that are deleted according
// to the list.
//
// Errors: KindVersion; KindCorrupt if the list itself is damaged in both copies, or missing where
// there must be one; errors of the file system.
func Open(fsys vfs.FS, dir string, o Options) (*Store, error) {
	s := &Store{dir: dir, opt: o.withDefaults(), files: map[ID]*file{}, highest: map[uint32]uint32{}}
	s.opt.Damaged = nil // damage that Open finds is in Segments
	s.fs = vfs.GiveWay(fsys, s.GiveWay)
	s.list = list{fs: s.fs, path: s.path, dir: dir, closed: map[ID]entry{}, deleted: map[ID]entry{}}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, IOError("make", dir, err)
	}
	known, differ := false, false
	if o.Listed {
		var err error
		if known, differ, err = s.list.read(); err != nil {
			return nil, err
		}
		if !known {
			return nil, corrupt(s.path(listNames[0]), 0, fmt.Errorf("the list of closed segments is missing, and its copy %s too", listNames[1]))
		}
	}
	there, err := s.sort(fsys)
	if err != nil {
		return nil, err
	}
	if err := s.openListed(there); err != nil {
		return nil, err
	}
	found, err := s.openUnlisted(there)
	if err != nil {
		return nil, err
	}
	for _, e := range found {
		s.list.take(e)
	}
	if err := s.openList(known, differ, len(found) > 0); err != nil {
		s.list.close()
		return nil, err
	}
	s.opt.Damaged = o.Damaged
	return s, nil
}

// openList prepares the list for appending. It rewrites the list if it is new, if its copies
// differ, or if a segment was found that is not on it. On a full disk the rewrite is done later.
func (s *Store) openList(known, differ, found bool) error {
	if known && !differ && !found {
		return s.list.open()
	}
	err := s.list.rewrite()
	if sharedlog.KindOf(err) != sharedlog.KindFull {
		return err
	}
	s.list.unsaved = true
	if !known || differ {
		return nil
	}
	return s.list.open()
}

// SaveList writes the list of closed segments if a full disk has prevented that in Open. Before
// that, a directory that was not Listed must not be opened with Listed.
func (s *Store) SaveList() error {
	s.listMu.Lock()
	defer s.listMu.Unlock()
	if !s.list.unsaved {
		return s.list.failed
	}
	return s.list.rewrite()
}

// Fresh reports whether the list never had an entry, and SetUsed was never called.
func (s *Store) Fresh() bool {
	s.listMu.Lock()
	defer s.listMu.Unlock()
	return s.list.fresh()
}

// SetUsed records that the directory has been used, so that a missing segment can be noticed: Fresh
// is false from then on, also of later Stores. On a full disk it has no effect and can be called
// again.
func (s *Store) SetUsed() error {
	s.listMu.Lock()
	defer s.listMu.Unlock()
	if !s.list.fresh() {
		return nil
	}
	s.list.used = true
	if err := s.list.rewrite(); sharedlog.KindOf(err) != sharedlog.KindFull {
		return err
	}
	return nil
}

// sort reads the directory. It returns the segments that have a file, and adds spare files to the
// pool.
func (s *Store) sort(fsys vfs.FS) (there map[ID]bool, err error) {
	names, err := fsys.List(s.dir)
	if err != nil {
		return nil, IOError("list", s.dir, err)
	}
	there = map[ID]bool{}
	for _, name := range names {
		if id, ok := parseName(name); ok {
			there[id] = true
			continue
		}
		if id, ok := parseName(strings.TrimSuffix(name, "-mend")); ok {
			done, err := s.endMend(id)
			if err != nil {
				return nil, err
			}
			if done {
				there[id] = true
			}
			continue
		}
		if !isSpare(name) {
			continue
		}
		size, err := fsys.Stat(s.path(name))
		if err != nil {
			return nil, IOError("stat", s.path(name), err)
		}
		if err := s.keepOrRemove(spareFile{name, size}); err != nil {
			return nil, IOError("remove", s.path(name), err)
		}
	}
	return there, nil
}

// openListed adds the segments on the list.
func (s *Store) openListed(there map[ID]bool) error {
	for _, id := range slices.SortedFunc(maps.Keys(s.list.closed), ID.Compare) {
		seg := fileOf(s.list.closed[id])
		if there[id] {
			if err := s.lookListed(seg); err != nil {
				return err
			}
		} else {
			seg.size, seg.absent = 0, true
			seg.damage = s.corruptSegment(seg, 0, errors.New("the file is missing"))
		}
		s.enter(seg)
	}
	return nil
}

// fileOf returns the segment of an entry.
func fileOf(e entry) *file {
	return &file{
		id: e.id, salt: e.salt, state: StateClosed, used: int64(e.footer.used), footer: e.footer,
		size: e.footer.size(), extent: e.extent, noFooter: e.kind == entryNoFooter,
	}
}

// lookListed compares a file with its entry on the list.
func (s *Store) lookListed(seg *file) error {
	name := s.path(seg.id.fileName())
	f, err := s.fs.Open(name)
	if err != nil {
		if damaging(err) {
			seg.absent, seg.damage = true, s.corruptSegment(seg, 0, err)
			return nil
		}
		return IOError("open", name, err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return IOError("stat", name, err)
	}
	var head [HeaderSize]byte
	if err := readSome(f, head[:], 0); err != nil {
		return IOError("read", name, err)
	}
	var wrong []string
	if !bytes.Equal(head[:], appendHeader(nil, seg.id, seg.salt)) {
		if v, other := otherVersion(head[:]); other {
			return sharedlog.Errorf(sharedlog.KindVersion, "%s: %w %d, this program knows %d", name, errVersion, v, version)
		}
		if id, ok := otherSegment(head[:]); ok {
			seg.absent, seg.damage = true, s.corruptSegment(seg, 0, fmt.Errorf("the file is not the one that was closed: it belongs to segment %v and has salt %x, not %x", id, binary.LittleEndian.Uint64(head[24:]), seg.salt))
			return nil
		}
		wrong = append(wrong, "header")
	}
	if seg.noFooter {
		seg.size, seg.damage = size, s.corruptSegment(seg, seg.used, errNoFooter)
		return nil
	}
	var tail [trailerSize]byte
	if err := readSome(f, tail[:], seg.size-trailerSize); err != nil {
		return IOError("read", name, err)
	}
	if !bytes.Equal(tail[:], seg.footer.append(nil, seg.salt)) {
		wrong = append(wrong, "trailer")
	}
	if size != seg.size {
		wrong = append(wrong, fmt.Sprintf("length of %d bytes", size))
	}
	if len(wrong) > 0 {
		return s.repair(seg, f, wrong)
	}
	return nil
}

// readSome fills b from an offset as far as the file reaches and the disk can read it, and clears
// the rest. It returns only errors that do not depend on the file's content.
func readSome(f io.ReaderAt, b []byte, off int64) error {
	clear(b)
	n, err := f.ReadAt(b, off)
	clear(b[n:])
	if err == io.EOF || err != nil && damaging(err) {
		return nil
	}
	return err
}

// otherVersion returns the version in an intact header if it is not this program's.
func otherVersion(head []byte) (v uint32, ok bool) {
	v = binary.LittleEndian.Uint32(head[8:])
	return v, wholeHeader(head) && v != version
}

// otherSegment returns the segment in an intact header.
func otherSegment(head []byte) (id ID, ok bool) {
	le := binary.LittleEndian
	return ID{le.Uint32(head[12:]), le.Uint32(head[16:])}, wholeHeader(head)
}

func wholeHeader(head []byte) bool {
	le := binary.LittleEndian
	return le.Uint64(head) == headerMagic && crc32.Checksum(head[:HeaderSize-4], codec.Castagnoli) == le.Uint32(head[HeaderSize-4:])
}

// repair rewrites the header, the trailer and the length of a closed segment's file from the list,
// if the footer is intact; otherwise the segment is damaged. f is the file, open for reading; wrong
// names the parts that differ.
func (s *Store) repair(seg *file, f vfs.File, wrong []string) error {
	what := strings.Join(wrong, ", ")
	footer := make([]byte, seg.footer.footerLen)
	if err := readSome(f, footer, int64(seg.footer.used)); err != nil {
		return IOError("read", s.path(seg.id.fileName()), err)
	}
	if crc32.Checksum(footer, codec.Castagnoli) != seg.footer.footerCRC {
		seg.damage = s.corruptSegment(seg, int64(seg.footer.used), fmt.Errorf("the footer fails its checksum, and other parts of the file differ from the list (%s)", what))
		return nil
	}
	if err := s.writeEnds(seg); err != nil {
		// It can still be read with the data on the list.
		seg.damage = s.corruptSegment(seg, 0, fmt.Errorf("the file differs from the list (%s), and could not be repaired: %w", what, err))
		return nil
	}
	seg.repaired = what
	return nil
}

func (s *Store) writeEnds(seg *file) error {
	f, err := s.fs.OpenReadWrite(s.path(seg.id.fileName()))
	if err != nil {
		return err
	}
	_, err = f.WriteAt(appendHeader(nil, seg.id, seg.salt), 0)
	if err == nil {
		_, err = f.WriteAt(seg.footer.append(nil, seg.salt), seg.footer.size()-trailerSize)
	}
	if err == nil {
		err = f.Truncate(seg.footer.size())
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// openUnlisted adds the segments that are not on the list: open ones, and closed ones that were not
// listed yet when the process ended, or are older than the list. It returns entries for the closed
// ones. It completes the deletion of segments that are deleted according to the list.
func (s *Store) openUnlisted(there map[ID]bool) (found []entry, err error) {
	ended := false
	for _, id := range slices.SortedFunc(maps.Keys(there), ID.Compare) {
		if _, ok := s.list.closed[id]; ok {
			continue
		}
		seg, err := s.look(id)
		if err != nil {
			return nil, err
		}
		if e, ok := s.list.deleted[id]; ok && (seg.state == StateDamaged && !seg.absent || seg.salt == e.salt) {
			ended = true
			if err := s.makeSpare(s.path(id.fileName()), seg.size); err != nil {
				return nil, err
			}
			continue
		}
		s.enter(seg)
		if seg.state == StateClosed {
			e, err := s.adopt(seg)
			if err != nil {
				return nil, err
			}
			found = append(found, e)
		}
	}
	if ended {
		if err := s.fs.SyncDir(s.dir); err != nil {
			return nil, IOError("sync", s.dir, err)
		}
	}
	for id := range s.list.deleted { // a number on the list is never reused
		s.highest[id.Shard] = max(s.highest[id.Shard], id.Number)
	}
	clear(s.list.deleted)
	return found, nil
}

// look reads a segment that is not on the list from its file. If the file has the header of another
// segment, the segment is damaged and has no content.
func (s *Store) look(id ID) (*file, error) {
	name := s.path(id.fileName())
	f, err := s.fs.Open(name)
	if err != nil {
		return nil, IOError("open", name, err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, IOError("stat", name, err)
	}
	seg := &file{id: id, size: size}
	var head [HeaderSize]byte
	if err := readSome(f, head[:], 0); err != nil {
		return nil, IOError("read", name, err)
	}
	if v, other := otherVersion(head[:]); other {
		return nil, sharedlog.Errorf(sharedlog.KindVersion, "%s: %w %d, this program knows %d", name, errVersion, v, version)
	}
	of, whole := otherSegment(head[:])
	if !whole || of != id {
		seg.state, seg.absent, seg.damage = StateDamaged, whole, s.corrupt(id, 0, errNoHeader)
		return seg, nil
	}
	seg.salt = binary.LittleEndian.Uint64(head[24:])
	t, ok, err := readTrailer(f, size, seg.salt)
	if err != nil && !damaging(err) {
		return nil, IOError("read", name, err)
	}
	if ok {
		seg.state, seg.footer, seg.used = StateClosed, t, int64(t.used)
	}
	return seg, nil
}

// adopt returns the entry for a closed segment that is not on the list.
func (s *Store) adopt(seg *file) (entry, error) {
	e := entry{kind: entryClosed, id: seg.id, salt: seg.salt, footer: seg.footer}
	use, err := s.acquire(seg.id)
	if err != nil {
		return e, err
	}
	footer, err := s.footer(use)
	s.release(use)
	if err == nil && s.opt.Extent != nil {
		e.extent, err = s.opt.Extent(seg.id, footer)
	}
	switch sharedlog.KindOf(err) {
	case sharedlog.KindCorrupt:
		if e.extent, _, err = s.positions(seg.id); err != nil {
			return e, err
		}
	case sharedlog.KindOther:
		if err != nil {
			return e, err
		}
	default:
		return e, err
	}
	seg.extent = e.extent
	return e, nil
}

// positions returns the positions that the frames of a segment hold, and the offset where they end,
// as far as they can be read.
func (s *Store) positions(id ID) (x Extent, used int64, err error) {
	first := true
	f, err := s.Scan(id, func(_ Location, d *Decoded) error {
		if first {
			x.From, first = d.Position, false
		}
		return nil
	})
	x.To = f.Next
	if sharedlog.KindOf(err) == sharedlog.KindCorrupt {
		err = nil // the damage of a closed segment
	}
	return x, f.End, err
}

// Adopt lists a segment as closed that does not look closed: its trailer or header was damaged
// before there was a list. The file does not change; readers get an error.
func (s *Store) Adopt(id ID) error {
	s.listMu.Lock()
	defer s.listMu.Unlock()
	s.mu.Lock()
	seg := s.files[id]
	s.mu.Unlock()
	if seg == nil || seg.state == StateClosed {
		return sharedlog.Errorf(sharedlog.KindInvalid, "segment %v is closed or not there", id)
	}
	extent, used, err := s.positions(id)
	if err != nil {
		return err
	}
	e := entry{kind: entryNoFooter, id: id, salt: seg.salt, footer: trailer{used: uint32(used)}, extent: extent}
	if err := s.list.prepare(); err != nil {
		return err
	}
	if err := s.list.note(e); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if seg.f != nil {
		s.opened++
	}
	seg.damage = s.corrupt(id, 0, errNoHeader)
	if seg.state == StateOpen {
		seg.damage = s.corrupt(id, used, errNoFooter)
	} else {
		seg.absent = true
	}
	seg.state, seg.footer, seg.used, seg.extent, seg.noFooter = StateClosed, e.footer, used, extent, true
	return nil
}
