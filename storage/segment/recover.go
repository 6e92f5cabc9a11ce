package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
)

// scanChunk is the number of bytes that a scan reads at a time.
const scanChunk = 1 << 20

// Found is the result of a scan of a segment.
type Found struct {
	ID     ID
	Frames int
	// Next is the sublog position after the last frame; 0 if there is none.
	Next uint64
	// End is the offset after the last frame, in bytes: where the scan stopped, and the value of
	// used for CloseSegment if all frames count.
	End int64
	// Stopped is the reason why there is no frame at End. It is io.EOF if the file ends or the
	// footer starts there, or if there are zeros. In a reused file the end of the frames looks like
	// damage, so only the caller, who knows how many records there must be, can distinguish the
	// two.
	Stopped error

	path string
}

// Damage returns the KindCorrupt error for a caller that expected more frames. It names file and
// offset.
func (f Found) Damage() error { return corrupt(f.path, f.End, f.Stopped) }

// Scan calls visit for the frames of a segment in order, from the start, until a frame is invalid
// or visit returns an error, which Scan then returns. The arguments of visit are valid until it
// returns. A frame whose position does not continue the frame before counts as damage, unless the
// segment is closed and the position lies ahead: the groups in between were trimmed when the
// segment was rewritten.
//
// Scan finds nothing in a Damaged segment. Its errors are those of visit and of the file system;
// invalid bytes are reported in Found. But a closed segment with an invalid frame is KindCorrupt.
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
			return found, IOError("read", found.path, err)
		}
		switch err = d.Decode(b, seg.salt); {
		case errors.Is(err, errBlank), len(b) < FixedSize && len(bytes.Trim(b, "\x00")) == 0:
			found.Stopped = io.EOF
		case err != nil:
			found.Stopped = err
		case found.Frames > 0 && d.Position != found.Next && !(closed && d.Position > found.Next):
			found.Stopped = fmt.Errorf("a frame of position %d instead of %d", d.Position, found.Next)
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

// window reads a file forward in large pieces.
type window struct {
	f   io.ReaderAt
	end int64 // limit of what may be read
	at  int64 // offset of buf[0]
	buf []byte
}

// frame returns the bytes from off on: the whole frame if one starts there and the file is long
// enough, otherwise what there is, at least up to FixedSize.
func (w *window) frame(off int64) ([]byte, error) {
	b, err := w.bytes(off, FixedSize)
	if err != nil || len(b) < FixedSize {
		return b, err
	}
	size, err := frameSize(b)
	if err != nil {
		return b, nil // Decode returns the same error
	}
	return w.bytes(off, size)
}

// bytes returns at least n bytes from off on, or all bytes up to the end.
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
		w.end = off + int64(got) // the file was truncated
		w.buf = w.buf[:got]
	}
	return w.buf, nil
}
