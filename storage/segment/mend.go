package segment

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// Mend rewrites a damaged closed segment with the groups of another replica:
//
//	n-mend: header, frames ▶ footer ▶ trailer ▶ list: closed, with the new salt ▶ renamed
//
// Until the list is written the damaged file is the segment. After that the new file is the
// segment, under whichever of the two names Open finds it. A Mend must be used by one goroutine.
type Mend struct {
	s   *Store
	old *file
	seg *file
	f   vfs.File
	at  int64 // offset of the next frame
}

// mendName returns the name of the file that will replace a segment.
func (id ID) mendName() string { return id.String() + ".seg-mend" }

// Mend starts to rewrite a closed segment. Errors: KindTrimmed if the segment does not exist any
// more, KindFull.
func (s *Store) Mend(id ID) (*Mend, error) {
	s.mu.Lock()
	old := s.files[id]
	s.mu.Unlock()
	if old == nil || old.state != StateClosed {
		return nil, sharedlog.Errorf(sharedlog.KindTrimmed, "segment %v is not there any more, or not closed", id)
	}
	f, err := s.fs.Create(s.path(id.mendName()))
	if err != nil {
		return nil, IOError("create", s.path(id.mendName()), err)
	}
	m := &Mend{s: s, old: old, seg: &file{id: id, salt: s.opt.Salt(), state: StateClosed}, f: f, at: HeaderSize}
	if _, err := f.WriteAt(appendHeader(nil, id, m.seg.salt), 0); err != nil {
		return nil, errors.Join(IOError("write", s.path(id.mendName()), err), m.Abort())
	}
	return m, nil
}

// Append writes the next frame, whose first record has the given position. After an error only
// Abort may be called.
func (m *Mend) Append(position uint64, f *Frame) (Location, error) {
	f.finish(position, m.seg.salt)
	loc := Location{m.seg.id, uint32(m.at), uint32(f.size), position}
	if _, err := m.f.WriteVAt(f.bufs, m.at); err != nil {
		return loc, IOError("write", m.s.path(m.seg.id.mendName()), err)
	}
	m.at = loc.End()
	return loc, nil
}

// Commit completes the file with its footer and replaces the damaged one by it. After an error the
// segment is as damaged as before; KindTrimmed means that it was deleted.
func (m *Mend) Commit(footer []byte) error {
	s, seg := m.s, m.seg
	seg.f = m.f
	e, err := s.entryOf(seg, m.at, footer)
	if err != nil {
		return errors.Join(err, m.Abort())
	}
	if err := s.finish(seg, seg.id.mendName(), e.footer, footer); err != nil {
		return errors.Join(err, m.Abort())
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return errors.Join(IOError("sync", s.dir, err), m.Abort())
	}
	s.listMu.Lock()
	defer s.listMu.Unlock()
	s.mu.Lock()
	gone := m.old.gone
	s.mu.Unlock()
	if gone {
		return errors.Join(sharedlog.Errorf(sharedlog.KindTrimmed, "segment %v was deleted", seg.id), m.Abort())
	}
	if err := s.list.prepare(); err != nil {
		return errors.Join(err, m.Abort())
	}
	if err := s.list.note(e); err != nil {
		return errors.Join(err, m.f.Close()) // the list may refer to the file by now
	}
	return s.replace(m.old, seg, e)
}

// replace renames the new file and makes it available to readers. The caller holds listMu.
func (s *Store) replace(old, seg *file, e entry) error {
	mended, name := s.path(seg.id.mendName()), s.path(seg.id.fileName())
	if err := s.fs.Rename(mended, name); err != nil {
		return errors.Join(IOError("rename", mended, err), seg.f.Close())
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return errors.Join(IOError("sync", s.dir, err), seg.f.Close())
	}
	seg.footer, seg.used, seg.size, seg.extent = e.footer, int64(e.footer.used), e.footer.size(), e.extent
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[seg.id] = seg
	s.opened++
	old.gone = true
	if old.f != nil {
		s.opened--
		if old.refs == 0 {
			_ = old.f.Close() // it was only read
			old.f = nil
		}
	}
	s.evict()
	return nil
}

// Abort removes the new file.
func (m *Mend) Abort() error {
	return errors.Join(m.f.Close(), m.s.fs.Remove(m.s.path(m.seg.id.mendName())))
}

// endMend completes a Mend that is on the list, or removes the file of another. done reports that
// the segment has its file now.
func (s *Store) endMend(id ID) (done bool, err error) {
	name := s.path(id.mendName())
	if e, listed := s.list.closed[id]; listed {
		f, err := s.fs.Open(name)
		if err != nil {
			return false, IOError("open", name, err)
		}
		var head [HeaderSize]byte
		err = errors.Join(readSome(f, head[:], 0), f.Close())
		if err != nil {
			return false, IOError("read", name, err)
		}
		done = bytes.Equal(head[:], appendHeader(nil, id, e.salt))
	}
	if !done {
		if err := s.fs.Remove(name); err != nil {
			return false, IOError("remove", name, err)
		}
		return false, nil
	}
	if err := s.fs.Rename(name, s.path(id.fileName())); err != nil {
		return false, IOError("rename", name, err)
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return false, IOError("sync", s.dir, err)
	}
	return true, nil
}

// Check reads all of a closed segment and compares it with the list. It rewrites a damaged header
// or trailer and returns in repaired what was damaged; other damage is KindCorrupt. A segment that
// was damaged and is found intact, because an operator has restored its file, is no longer damaged.
// Check calls pace with the size of each piece that it has read, in bytes. pace may wait, and its
// error ends the check.
func (s *Store) Check(id ID, pace func(bytes int) error) (repaired string, err error) {
	if err := s.lookAgain(id); err != nil {
		return "", err
	}
	seg, err := s.acquire(id)
	if err != nil {
		return "", err
	}
	defer s.release(seg)
	s.mu.Lock()
	state, t, extent, gone := seg.state, seg.footer, seg.extent, seg.gone
	s.mu.Unlock()
	if state != StateClosed || gone {
		return "", sharedlog.Errorf(sharedlog.KindTrimmed, "segment %v is not there any more, or not closed", id)
	}
	if _, err := s.footer(seg); err != nil {
		return "", err
	}
	if repaired, err = s.checkEnds(seg, t); err != nil {
		return repaired, err
	}
	if err := pace(HeaderSize + int(t.footerLen) + trailerSize); err != nil {
		return repaired, err
	}
	first, paced := uint64(0), int64(HeaderSize)
	f, err := s.Scan(id, func(loc Location, d *Decoded) error {
		if loc.Offset == HeaderSize {
			first = d.Position
		}
		if loc.End()-paced < scanChunk {
			return nil
		}
		n := loc.End() - paced
		paced = loc.End()
		return pace(int(n))
	})
	if err != nil {
		return repaired, err
	}
	if extent.To > 0 && (first != extent.From || f.Next != extent.To) {
		return repaired, s.damaged(seg, HeaderSize, fmt.Errorf("it holds positions %d to %d, and %d to %d were closed", first, f.Next, extent.From, extent.To))
	}
	s.mu.Lock()
	seg.damage = nil
	s.mu.Unlock()
	return repaired, pace(int(f.End - paced))
}

// checkEnds compares the header and trailer of an acquired segment with the expected ones, and
// rewrites them if they differ. The footer is known to be intact.
func (s *Store) checkEnds(seg *file, t trailer) (repaired string, err error) {
	var head [HeaderSize]byte
	var tail [trailerSize]byte
	if err := errors.Join(readSome(seg.f, head[:], 0), readSome(seg.f, tail[:], t.size()-trailerSize)); err != nil {
		return "", IOError("read", s.path(seg.id.fileName()), err)
	}
	var wrong []string
	if !bytes.Equal(head[:], appendHeader(nil, seg.id, seg.salt)) {
		wrong = append(wrong, "header")
	}
	if !bytes.Equal(tail[:], t.append(nil, seg.salt)) {
		wrong = append(wrong, "trailer")
	}
	if len(wrong) == 0 {
		return "", nil
	}
	repaired = strings.Join(wrong, ", ")
	if err := s.writeEnds(seg); err != nil {
		return "", s.damaged(seg, 0, fmt.Errorf("the file differs from the list (%s), and could not be repaired: %w", repaired, err))
	}
	return repaired, nil
}

// lookAgain looks again for the file of a segment whose file was missing.
func (s *Store) lookAgain(id ID) error {
	s.listMu.Lock()
	defer s.listMu.Unlock()
	e, listed := s.list.closed[id]
	s.mu.Lock()
	seg := s.files[id]
	absent := seg != nil && seg.absent
	s.mu.Unlock()
	if !listed || !absent {
		return nil
	}
	again := fileOf(e)
	if err := s.lookListed(again); err != nil {
		return err
	}
	if !again.absent {
		s.mu.Lock()
		seg.absent, seg.size, seg.damage = false, again.size, again.damage
		s.mu.Unlock()
	}
	return nil
}
