package segment

import (
	"errors"
	"fmt"
	"io/fs"
)

// zeros is used to fill files.
var zeros [1 << 20]byte

// syncEvery is the number of bytes of zeros after which the file is synced, so that the disk's
// queue is short when an append's sync follows.
const syncEvery = 8 << 20

// atHand is the number of spare files that are kept while nothing is written.
const atHand = 2

// spareFile is the file of a deleted segment.
type spareFile struct {
	name string
	size int64 // bytes
}

// spareName returns a name for a spare file.
func (s *Store) spareName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spares++
	return fmt.Sprintf("spare-%d", s.spares)
}

// keepOrRemove adds a spare file to the pool, or removes it if the pool is full.
func (s *Store) keepOrRemove(f spareFile) error {
	s.mu.Lock()
	var n int
	if _, err := fmt.Sscanf(f.name, "spare-%d", &n); err == nil {
		s.spares = max(s.spares, n) // keeps names distinct
	}
	keep := len(s.spare) < s.opt.Spare && !s.full
	if keep {
		s.spare = append(s.spare, f)
	}
	s.mu.Unlock()
	if keep {
		return nil
	}
	return s.fs.Remove(s.path(f.name))
}

// prepare creates the file of a segment of the given size, ready for frames. It uses a spare file
// if there is one, fills it up with zeros, writes the header, syncs and renames it. The header is
// durable before the rename: a file with a segment's name is that segment. The result is acquired;
// the caller calls release.
func (s *Store) prepare(id ID, size int64) (*file, error) {
	s.mu.Lock()
	name := ""
	if n := len(s.spare); n > 0 {
		name, s.spare = s.spare[n-1].name, s.spare[:n-1]
		s.least = min(s.least, n-1)
	}
	s.mu.Unlock()
	open := s.fs.OpenReadWrite
	if name == "" {
		name, open = s.spareName(), s.fs.Create
	}
	f, err := open(s.path(name))
	if err != nil {
		return nil, IOError("open", s.path(name), err)
	}
	seg := &file{id: id, salt: s.opt.Salt(), used: HeaderSize, f: f}
	if err := s.fill(seg, name, size); err != nil {
		// Most likely the disk is full, and the space is needed more than the file.
		return nil, errors.Join(err, f.Close(), s.discard(name, id))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.refs = 1
	s.enter(seg)
	return seg, nil
}

// discard removes a file that could not be made a segment, under its current name.
func (s *Store) discard(name string, id ID) error {
	err := s.fs.Remove(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		err = s.fs.Remove(s.path(id.fileName()))
	}
	return err
}

func (s *Store) fill(seg *file, name string, size int64) error {
	var err error
	if seg.size, err = seg.f.Size(); err != nil {
		return IOError("stat", s.path(name), err)
	}
	if err := s.extend(seg, name, size); err != nil {
		return err
	}
	if _, err := seg.f.WriteAt(appendHeader(nil, seg.id, seg.salt), 0); err != nil {
		return IOError("write", s.path(name), err)
	}
	seg.size = max(seg.size, HeaderSize)
	if err := seg.f.Sync(); err != nil {
		return IOError("sync", s.path(name), err)
	}
	if err := s.fs.Rename(s.path(name), s.path(seg.id.fileName())); err != nil {
		return IOError("rename", s.path(name), err)
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return IOError("sync", s.dir, err)
	}
	return nil
}

// extend fills a file with zeros up to size. It does nothing with Options.Grow, or if the file is
// long enough.
func (s *Store) extend(seg *file, name string, size int64) error {
	if s.opt.Grow {
		return nil
	}
	unsynced := int64(0)
	for seg.size < size {
		n := min(size-seg.size, int64(len(zeros)))
		if _, err := seg.f.WriteAt(zeros[:n], seg.size); err != nil {
			return IOError("write", s.path(name), err)
		}
		s.mu.Lock() // other goroutines see the segment already
		seg.size += n
		s.mu.Unlock()
		if unsynced += n; unsynced >= syncEvery {
			unsynced = 0
			if err := seg.f.Sync(); err != nil {
				return IOError("sync", s.path(name), err)
			}
		}
	}
	return nil
}
