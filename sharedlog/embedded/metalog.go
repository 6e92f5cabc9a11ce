package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// The metalog is a chain of files meta-1.log, meta-2.log …; each begins with a snapshot of all
// before it. A file is a sequence of frames, each at a multiple of 8:
//
//	 0        4        8      9                9+length
//	+--------+--------+------+----------------+---------------+
//	| crc32c | length | kind | payload        | zeros, to 8   |
//	| LE u32 | LE u32 |      |                |               |
//	+--------+--------+------+----------------+---------------+
//
// The checksum covers the file's number and the frame's offset (LE u64 each) and the bytes from
// length to the end of the payload, so a frame is valid only at its own place. After the last frame
// the file holds zeros: room for the next frames, and the reserve that lets trims pass on a full
// disk (pitfall G9).
//
//	snapshot = version(1) shard segment position durable n{state} n{mark}
//	entries  = synced durable { n{entry} }
//
// Numbers are uvarints; n{x} is x after its length. A snapshot states that the shard's groups from
// position on are in its segments from number segment on; state is sequencer.State's encoding, mark
// storage.Order's. durable is a sublog length and synced an offset of the same file: when the frame
// was written, the sublog and the metalog were certainly on disk up to there. So below the newest
// pair a defect is damage; above it a power cut may be the cause. An entries frame without entries
// is only a sync mark.
const (
	metaSnapshot = 1
	metaEntries  = 2

	metaHeader  = 9
	metaVersion = 1
	metaGrow    = 1 << 20
	// metaReserve is room that only trims may use.
	metaReserve = 256 << 10
	// metaRotate is the size at which the log starts a new file although no segment was closed.
	metaRotate = 16 << 20
)

// metalog appends to one metalog file.
type metalog struct {
	f      vfs.File
	path   string
	number uint64
	// segment is the first segment that a recovery from this file reads: it must exist.
	segment uint32
	off     int64 // of the next frame
	room    int64 // the file is filled with zeros up to here
	buf     []byte
}

func metaName(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("meta-%08d.log", number))
}

func parseMetaName(name string) (number uint64, ok bool) {
	_, err := fmt.Sscanf(name, "meta-%08d.log", &number)
	return number, err == nil && filepath.Base(metaName("", number)) == name
}

// createMetalog creates a file with room for the reserve. The caller appends the snapshot.
func createMetalog(fsys vfs.FS, dir string, number uint64) (*metalog, error) {
	m := &metalog{path: metaName(dir, number), number: number}
	f, err := fsys.Create(m.path)
	if err != nil {
		return nil, segment.IOError("create", m.path, err)
	}
	m.f = f
	if err := m.ensure(metaReserve); err != nil {
		_ = f.Close()
		_ = fsys.Remove(m.path) // its space is needed elsewhere
		return nil, err
	}
	return m, nil
}

// ensure makes room for n more bytes. After an error of KindFull the file is unchanged.
func (m *metalog) ensure(n int64) error {
	for m.room-m.off < n {
		if _, err := m.f.WriteAt(zeros[:], m.room); err != nil {
			return segment.IOError("extend", m.path, err)
		}
		m.room += int64(len(zeros))
	}
	return nil
}

var zeros [metaGrow]byte

// append writes a frame at the end of the file.
func (m *metalog) append(kind byte, payload func(dst []byte) []byte) error {
	b := append(m.buf[:0], 0, 0, 0, 0, 0, 0, 0, 0, kind)
	b = payload(b)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-metaHeader))
	binary.LittleEndian.PutUint32(b, metaCRC(m.number, m.off, b[4:]))
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	m.buf = b
	if err := m.ensure(int64(len(b))); err != nil {
		return err
	}
	if _, err := m.f.WriteAt(b, m.off); err != nil {
		return segment.IOError("write", m.path, err)
	}
	m.off += int64(len(b))
	return nil
}

func (m *metalog) sync() error {
	if err := m.f.Sync(); err != nil {
		return segment.IOError("sync", m.path, err)
	}
	return nil
}

func metaCRC(number uint64, off int64, b []byte) uint32 {
	var place [16]byte
	binary.LittleEndian.PutUint64(place[:], number)
	binary.LittleEndian.PutUint64(place[8:], uint64(off))
	return crc32.Update(crc32.Checksum(place[:], codec.Castagnoli), codec.Castagnoli, b)
}

// metaBase is the content of a snapshot frame.
type metaBase struct {
	shard    sequencer.ShardID
	segment  uint32
	position uint64
	durable  uint64
	state    []byte
	mark     []byte
}

func (s *metaBase) append(dst []byte) []byte {
	dst = append(dst, metaVersion)
	dst = binary.AppendUvarint(dst, uint64(s.shard))
	dst = binary.AppendUvarint(dst, uint64(s.segment))
	dst = binary.AppendUvarint(dst, s.position)
	dst = binary.AppendUvarint(dst, s.durable)
	dst = binary.AppendUvarint(dst, uint64(len(s.state)))
	dst = append(dst, s.state...)
	dst = binary.AppendUvarint(dst, uint64(len(s.mark)))
	return append(dst, s.mark...)
}

// syncMark says what was durable when a frame was written.
type syncMark struct {
	synced  int64  // this file up to here, and all files before it
	durable uint64 // length of the sublog
}

func appendEntries(dst []byte, k syncMark, es []sequencer.Entry) []byte {
	dst = binary.AppendUvarint(dst, uint64(k.synced))
	dst = binary.AppendUvarint(dst, k.durable)
	for i := range es {
		// The length is not known yet: leave room for the longest.
		at := len(dst)
		dst = append(dst, 0, 0, 0, 0, 0)
		dst = sequencer.AppendEntry(dst, es[i])
		n := len(dst) - at - 5
		for j := range 4 {
			dst[at+j] = byte(n>>(7*j)) | 0x80
		}
		dst[at+4] = byte(n >> 28)
	}
	return dst
}

// metaFile is the content of a metalog file.
type metaFile struct {
	path    string
	number  uint64
	base    metaBase
	hasBase bool
	frames  []metaFrame // the frames with entries
	end     int64       // of the last valid frame
	mark    syncMark    // the newest one; that of base if there is no other
}

// metaFrame is one frame with entries. They became durable together.
type metaFrame struct {
	off     int64
	entries []sequencer.Entry
}

// readMetalog reads a file. It stops at the first invalid frame; if a sync mark shows that there
// were more frames, it returns ErrCorrupt.
func readMetalog(fsys vfs.FS, dir string, number uint64) (*metaFile, error) {
	m := &metaFile{path: metaName(dir, number), number: number}
	b, err := readFile(fsys, m.path)
	if err != nil {
		return nil, err
	}
	for {
		kind, payload, next, ok := m.frame(b, m.end)
		if !ok {
			break
		}
		if err := m.take(kind, payload); err != nil {
			return nil, err
		}
		m.end = next
	}
	// A frame behind the end is left from writes that were not synced before a power cut. But if
	// its sync mark lies above the end, the end is damage.
	for off := m.end + 8; off+metaHeader <= int64(len(b)); off += 8 {
		kind, payload, _, ok := m.frame(b, off)
		if !ok || kind != metaEntries {
			continue
		}
		if k, _, err := decodeEntries(payload); err == nil && k.synced > m.end {
			return nil, m.corrupt(m.end, errors.New("an entry that was durable is damaged"))
		}
	}
	return m, nil
}

// frame returns the frame at off; ok is false if there is none.
func (m *metaFile) frame(b []byte, off int64) (kind byte, payload []byte, next int64, ok bool) {
	if off+metaHeader > int64(len(b)) {
		return 0, nil, 0, false
	}
	f := b[off:]
	n := int64(binary.LittleEndian.Uint32(f[4:]))
	if f[8] == 0 || n > int64(len(f))-metaHeader ||
		metaCRC(m.number, off, f[4:metaHeader+n]) != binary.LittleEndian.Uint32(f) {
		return 0, nil, 0, false
	}
	return f[8], f[metaHeader : metaHeader+n], off + (metaHeader+n+7)&^7, true
}

func (m *metaFile) take(kind byte, payload []byte) error {
	switch {
	case kind == metaSnapshot && m.end == 0:
		if err := m.base.decode(payload); err != nil {
			return m.corrupt(m.end, err)
		}
		m.hasBase = true
		m.mark.durable = m.base.durable
		return nil
	case kind == metaEntries && m.hasBase:
		k, es, err := decodeEntries(payload)
		if err != nil {
			return m.corrupt(m.end, err)
		}
		m.mark = k
		if len(es) > 0 {
			m.frames = append(m.frames, metaFrame{m.end, es})
		}
		return nil
	}
	return m.corrupt(m.end, fmt.Errorf("a frame of kind %d is not expected here", kind))
}

func (m *metaFile) corrupt(off int64, why error) error {
	return sharedlog.Errorf(sharedlog.KindCorrupt, "%s, offset %d: %w", m.path, off, why)
}

var errMeta = errors.New("malformed frame")

func (s *metaBase) decode(b []byte) error {
	if len(b) == 0 {
		return errMeta
	}
	if b[0] != metaVersion {
		return sharedlog.Errorf(sharedlog.KindVersion, "metalog has version %d, this program reads %d", b[0], metaVersion)
	}
	r := codec.Reader{B: b[1:]}
	s.shard, s.segment, s.position, s.durable = sequencer.ShardID(r.Uvarint()), uint32(r.Uvarint()), r.Uvarint(), r.Uvarint()
	s.state, s.mark = r.Bytes(), r.Bytes()
	if r.Bad || len(r.B) != 0 {
		return errMeta
	}
	return nil
}

func decodeEntries(b []byte) (k syncMark, es []sequencer.Entry, err error) {
	r := codec.Reader{B: b}
	k.synced, k.durable = int64(r.Uvarint()), r.Uvarint()
	for len(r.B) > 0 {
		one := r.Bytes()
		if r.Bad {
			break
		}
		e, err := sequencer.DecodeEntry(one)
		if err != nil {
			return k, nil, err
		}
		es = append(es, e)
	}
	if r.Bad {
		return k, nil, errMeta
	}
	return k, es, nil
}

func readFile(fsys vfs.FS, path string) ([]byte, error) {
	b, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return nil, segment.IOError("read", path, err)
	}
	return b, nil
}
