package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
)

// scanChunk is how many bytes a scan reads at a time.
const scanChunk = 1 << 20

// Found is what a scan of a segment found.
type Found struct {
	ID     ID
	Frames int
	// Next is the sublog position behind the last frame; 0 if there is none.
	Next uint64
	// End is the offset behind the last frame, in bytes: where the scan
	// stopped, and what CloseSegment takes as used if all of it counts.
	End int64
	// Stopped says why the bytes at End are no frame. It is io.EOF if the file
	// or its footer begins there or if there are zeros. In a recycled file
	// the end of the frames looks like damage, so only the caller, who knows
	// how many records there must be, can tell the one from the other.
	Stopped error

	path string
}

// Damage returns the KindCorrupt error for a caller who expected more frames
// than were found; it names file and offset.
func (f Found) Damage() error { return corrupt(f.path, f.End, f.Stopped) }

// Scan shows the frames of a segment in order, from the start, until one does
// not check or visit fails; visit's error is returned. What visit is given is
// valid until it returns. The positions of the frames go on from one to the
// next; one that does not is taken as damage, unless the segment is closed and the
// position lies ahead: what is between was trimmed when the segment was written anew.
//
// Of a Damaged segment nothing is found. The error is visit's or the file system's,
// not about what the bytes say: that is Found's. But a closed segment in which not all
// frames check is KindCorrupt.
func (s *Store) Scan(id ID, visit func(Location, *Decoded) error) (Found, error) {
	found := Found{ID: id, End: HeaderSize, path: s.path(id.fileName())}
	s.mu.Lock()
	damaged := s.files[id] != nil && s.files[id].state == StateDamaged
	s.mu.Unlock()
	if damaged {
		found.End, found.Stopped = 0, errNoHeader
		return found, nil
	}
	seg, err := s.acquire(id)
	if err != nil {
		return found, err
	}
	defer s.release(seg)
	s.mu.Lock()
	w := window{f: seg.f, end: seg.size}
	closed := seg.state == StateClosed
	if closed {
		w.end = seg.used
	}
	s.mu.Unlock()
	var d Decoded
	for {
		b, err := w.frame(found.End)
		if closed && damaging(err) {
			return found, s.damaged(seg, found.End, err)
		}
		if err != nil {
			return found, ioError("read", found.path, err)
		}
		switch err = d.Decode(b, seg.salt); {
		case errors.Is(err, errBlank), len(b) < FixedSize && len(bytes.Trim(b, "\x00")) == 0:
			found.Stopped = io.EOF
		case err != nil:
			found.Stopped = err
		case found.Frames > 0 && d.Position != found.Next && !(closed && d.Position > found.Next):
			found.Stopped = fmt.Errorf("a frame of position %d where %d was to come", d.Position, found.Next)
		}
		if found.Stopped != nil {
			if closed && (found.End < seg.used || seg.noFooter) {
				return found, s.damaged(seg, found.End, found.Stopped)
			}
			return found, nil
		}
		loc := Location{id, uint32(found.End), uint32(d.Size), d.Position}
		if err := visit(loc, &d); err != nil {
			return found, err
		}
		found.Frames++
		found.Next = d.End()
		found.End = loc.End()
	}
}

// window reads a file forwards in large pieces.
type window struct {
	f   io.ReaderAt
	end int64 // of what may be read
	at  int64 // offset of buf[0]
	buf []byte
}

// frame returns the bytes from off on: the whole frame if one begins there and
// the file goes that far, else what there is, at least up to FixedSize.
func (w *window) frame(off int64) ([]byte, error) {
	b, err := w.bytes(off, FixedSize)
	if err != nil || len(b) < FixedSize {
		return b, err
	}
	size, err := frameSize(b)
	if err != nil {
		return b, nil // Decode says the same again
	}
	return w.bytes(off, size)
}

// bytes returns at least n bytes from off on, or all up to the end.
func (w *window) bytes(off int64, n int) ([]byte, error) {
	n = int(min(int64(n), w.end-off))
	if have := off - w.at; have >= 0 && have+int64(n) <= int64(len(w.buf)) {
		return w.buf[have:], nil
	}
	want := int(min(int64(max(n, scanChunk)), w.end-off))
	w.at = off
	w.buf = slices.Grow(w.buf[:0], want)[:want]
	if got, err := w.f.ReadAt(w.buf, off); got < want {
		if err != io.EOF {
			return nil, err
		}
		w.end = off + int64(got) // somebody cut the file
		w.buf = w.buf[:got]
	}
	return w.buf, nil
}
