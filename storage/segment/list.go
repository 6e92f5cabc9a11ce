package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"slices"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// The list contains the closed segments that must exist, so that a file that is missing, or whose
// header or trailer is damaged, is never mistaken for a deleted one (docs/adr/0022). There are two
// complete copies, LIST-1 and LIST-2:
//
//	0          32       104      176
//	+----------+--------+--------+----
//	| header   | entry  | entry  | …     zeros after the last one: space for entries
//	+----------+--------+--------+----
//	header = magic 8 | version 4 | 0 4 | generation 8 | 0 4 | crc 4
//	entry  = kind 4 | shard 4 | number 4 | used 4 | salt 8 | footer length 4 | footer crc 4
//	       | from 8 | to 8 | first 8 | end 8 | durable 4 | crc 4
//	kind   = 1 closed | 2 closed, has no footer | 3 deleted
//
// An entry's CRC covers the generation, the entry's ordinal and the entry. The newest entry of a
// segment counts. An entry is valid if it is intact in either copy. If it is damaged in both, and
// another entry says that so many entries were durable when it was written, the list is damaged.
// Otherwise the list ends there: a power failure has left a part of entries that were written
// together. A copy is replaced as a whole (written beside it, synced, renamed) under the next
// generation when it has grown, or when Open finds that the copies differ. Generation 1 is a list
// that never had an entry, in a directory that was never used (SetUsed).
//
// The space after the entries is sufficient to delete every listed segment: on a full disk a
// segment may not be closed, but it can always be deleted.
const listMagic uint64 = 0x31_54_53_4c_4c_49_41_54 // "TAILLST1"

const (
	listVersion    = 1
	listHeaderSize = 32
	entrySize      = 72
	// listGrow is the step in which the space of a copy grows, in bytes.
	listGrow = 32 << 10
	// listSlack is the number of superseded entries below which the list is not rewritten.
	listSlack = 512
)

var listNames = [2]string{"LIST-1", "LIST-2"}

type entryKind uint32

const (
	entryClosed entryKind = iota + 1
	// entryNoFooter is a closed segment whose trailer or header was damaged before there was a
	// list: the place of its footer is unknown.
	entryNoFooter
	entryDeleted
)

// Extent is the part of a shard and of the order that a segment holds.
type Extent struct {
	From, To uint64 // sublog positions: of the first record, and after the last
	// First and End are LSNs: of the first record, and after the last. End is 0 if they are
	// unknown.
	First, End sharedlog.LSN
}

// entry is one entry of the list.
type entry struct {
	kind   entryKind
	id     ID
	salt   uint64
	footer trailer
	extent Extent
	// durable is the number of entries that were durable when this one was written.
	durable uint32
}

func (e *entry) append(b []byte, generation uint64, ordinal int) []byte {
	le := binary.LittleEndian
	at := len(b)
	b = le.AppendUint32(b, uint32(e.kind))
	b = le.AppendUint32(b, e.id.Shard)
	b = le.AppendUint32(b, e.id.Number)
	b = le.AppendUint32(b, e.footer.used)
	b = le.AppendUint64(b, e.salt)
	b = le.AppendUint32(b, e.footer.footerLen)
	b = le.AppendUint32(b, e.footer.footerCRC)
	for _, v := range []uint64{e.extent.From, e.extent.To, uint64(e.extent.First), uint64(e.extent.End)} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(b, e.durable)
	return le.AppendUint32(b, entryCRC(b[at:], generation, ordinal))
}

// entryCRC returns the CRC of an entry; b is the entry before its CRC.
func entryCRC(b []byte, generation uint64, ordinal int) uint32 {
	var place [16]byte
	binary.LittleEndian.PutUint64(place[:], generation)
	binary.LittleEndian.PutUint64(place[8:], uint64(ordinal))
	return crc32.Update(crc32.Checksum(place[:], codec.Castagnoli), codec.Castagnoli, b)
}

func (e *entry) decode(b []byte, generation uint64, ordinal int) bool {
	le := binary.LittleEndian
	if entryCRC(b[:entrySize-4], generation, ordinal) != le.Uint32(b[entrySize-4:]) {
		return false
	}
	e.kind = entryKind(le.Uint32(b))
	e.id = ID{le.Uint32(b[4:]), le.Uint32(b[8:])}
	e.salt = le.Uint64(b[16:])
	e.footer = trailer{le.Uint32(b[12:]), le.Uint32(b[24:]), le.Uint32(b[28:])}
	e.extent = Extent{le.Uint64(b[32:]), le.Uint64(b[40:]), sharedlog.LSN(le.Uint64(b[48:])), sharedlog.LSN(le.Uint64(b[56:]))}
	e.durable = le.Uint32(b[64:])
	return e.kind >= entryClosed && e.kind <= entryDeleted
}

func listHeader(generation uint64) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(make([]byte, 0, listHeaderSize), listMagic)
	b = le.AppendUint32(b, listVersion)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, generation)
	b = le.AppendUint32(b, 0)
	return le.AppendUint32(b, crc32.Checksum(b, codec.Castagnoli))
}

// list is the list of a Store. It is protected by Store.listMu.
type list struct {
	fs   vfs.FS
	path func(name string) string
	dir  string

	generation uint64
	closed     map[ID]entry
	// deleted holds the deleted segments whose file may still exist, or may reappear after a crash.
	deleted map[ID]entry
	files   [2]vfs.File // nil: the copies differ, and a full disk prevented a rewrite
	n       int         // entries in each copy
	written int         // entries in either copy, including those of a failed note
	room    int64       // offset up to which both copies are filled with zeros
	unsaved bool        // there are changes that are in neither copy
	used    bool        // SetUsed was called
	failed  error       // permanent: the content of the copies is unknown
}

// read reads both copies. known is false if neither exists. differ reports that a copy is missing,
// damaged or older, so that both must be rewritten.
func (l *list) read() (known, differ bool, err error) {
	var copies [2]listCopy
	for i, name := range listNames {
		if copies[i], err = readCopy(l.fs, l.path(name)); err != nil {
			return false, false, err
		}
		known = known || copies[i].there
	}
	if !known {
		return false, false, nil
	}
	for _, c := range copies {
		if c.ok {
			l.generation = max(l.generation, c.generation)
		}
	}
	var all [][]byte
	var paths []string
	longest := 0
	for i, c := range copies {
		if !c.ok || c.generation != l.generation {
			differ = true
			continue
		}
		all, paths = append(all, c.entries), append(paths, l.path(listNames[i]))
		longest = max(longest, len(c.entries)/entrySize)
	}
	if len(all) == 0 {
		return false, false, corrupt(l.path(listNames[0]), 0, errors.New("neither this copy of the list of closed segments nor the other has its header"))
	}
	n, durable := 0, 0 // n: entries before the first that is in no copy; durable: how many were durable
	for i := range longest {
		var e entry
		whole := 0
		for _, c := range all {
			if at := i * entrySize; at+entrySize <= len(c) && e.decode(c[at:at+entrySize], l.generation, i) {
				whole++
			}
		}
		if whole == 0 {
			continue
		}
		durable = max(durable, int(e.durable))
		if i > n {
			differ = true // it was never durable (see below) and must not be read again
			continue
		}
		differ = differ || whole < len(all)
		l.take(e)
		n++
	}
	if n < durable {
		return false, false, corrupt(paths[0], int64(listHeaderSize+n*entrySize), errors.New("an entry of the list of closed segments is damaged in each copy"))
	}
	l.n = n
	l.written = l.n
	return true, differ, nil
}

// take applies entries.
func (l *list) take(entries ...entry) {
	for _, e := range entries {
		if e.kind == entryDeleted {
			delete(l.closed, e.id)
			l.deleted[e.id] = e
			continue
		}
		delete(l.deleted, e.id)
		l.closed[e.id] = e
	}
}

// listCopy is the content of a copy.
type listCopy struct {
	there, ok  bool
	generation uint64
	entries    []byte
}

func readCopy(fsys vfs.FS, path string) (c listCopy, err error) {
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, IOError("open", path, err)
	}
	defer f.Close()
	c.there = true
	size, err := f.Size()
	if err != nil {
		return c, IOError("stat", path, err)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) && err != io.EOF {
		if damaging(err) {
			return c, nil // the other copy may be intact
		}
		return c, IOError("read", path, err)
	}
	le := binary.LittleEndian
	if len(b) < listHeaderSize || le.Uint64(b) != listMagic || crc32.Checksum(b[:listHeaderSize-4], codec.Castagnoli) != le.Uint32(b[listHeaderSize-4:]) {
		return c, nil
	}
	if v := le.Uint32(b[8:]); v != listVersion {
		return c, sharedlog.Errorf(sharedlog.KindVersion, "%s: list of segments of version %d, this program knows %d", path, v, listVersion)
	}
	c.ok, c.generation, c.entries = true, le.Uint64(b[16:]), b[listHeaderSize:]
	return c, nil
}

// fresh reports whether the list is unchanged since its creation, without an entry.
func (l *list) fresh() bool { return l.n == 0 && l.generation <= 1 }

// rewrite replaces both copies by the current state. After KindFull they are unchanged.
func (l *list) rewrite() error {
	if l.failed != nil {
		return l.failed
	}
	generation := l.generation + 1
	if l.generation == 1 && l.fresh() && len(l.closed)+len(l.deleted) == 0 && !l.used {
		generation = 1 // unchanged: there is no other list of this generation
	}
	b := listHeader(generation)
	n := 0
	for _, m := range []map[ID]entry{l.closed, l.deleted} {
		for _, id := range slices.SortedFunc(maps.Keys(m), ID.Compare) {
			e := m[id]
			e.durable = uint32(len(l.closed) + len(l.deleted)) // they are, before the copy is renamed
			b = e.append(b, generation, n)
			n++
		}
	}
	room := listRoom(n, len(l.closed))
	b = append(b, make([]byte, room-int64(len(b)))...)
	var files [2]vfs.File
	for i, name := range listNames {
		f, err := l.write(name+"-new", b)
		if err != nil {
			for j := range i {
				err = errors.Join(err, files[j].Close(), l.fs.Remove(l.path(listNames[j]+"-new")))
			}
			return err
		}
		files[i] = f
	}
	for _, name := range listNames {
		if err := l.fs.Rename(l.path(name+"-new"), l.path(name)); err != nil {
			l.failed = errors.Join(fmt.Errorf("rename %s: %w", l.path(name+"-new"), err), files[0].Close(), files[1].Close())
			return l.failed
		}
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		l.failed = errors.Join(fmt.Errorf("sync %s: %w", l.dir, err), files[0].Close(), files[1].Close())
		return l.failed
	}
	l.close()
	l.generation, l.files, l.n, l.written, l.room, l.unsaved = generation, files, n, n, room, false
	return nil
}

// write creates a durable file with content b. On error it removes the file.
func (l *list) write(name string, b []byte) (vfs.File, error) {
	path := l.path(name)
	f, err := l.fs.Create(path)
	if err != nil {
		return nil, IOError("create", path, err)
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(IOError("write", path, err), f.Close(), l.fs.Remove(path))
	}
	return f, nil
}

// listRoom returns the size of a copy with n entries and space to delete all of live segments and
// to close some.
func listRoom(n, live int) int64 {
	need := int64(listHeaderSize + (n+live+2)*entrySize)
	return (need + listGrow) / listGrow * listGrow
}

// open opens both copies, which are identical, for appending.
func (l *list) open() error {
	l.room = 1 << 62
	for i, name := range listNames {
		f, err := l.fs.OpenReadWrite(l.path(name))
		if err != nil {
			return IOError("open", l.path(name), err)
		}
		l.files[i] = f
		size, err := f.Size()
		if err != nil {
			return IOError("stat", l.path(name), err)
		}
		l.room = min(l.room, size)
	}
	return nil
}

func (l *list) close() {
	for i, f := range l.files {
		if f != nil {
			_ = f.Close() // all its entries are synced
		}
		l.files[i] = nil
	}
}

// prepare provides space for one more closed segment, and for its deletion, in both copies. After
// KindFull nothing has changed.
func (l *list) prepare() error {
	if l.failed != nil {
		return l.failed
	}
	if l.unsaved || l.n > 2*len(l.closed)+listSlack {
		if err := l.rewrite(); sharedlog.KindOf(err) != sharedlog.KindFull || l.files[0] == nil {
			return err
		}
	}
	need := int64(listHeaderSize + (l.n+1+len(l.closed)+1)*entrySize)
	if need <= l.room {
		return nil
	}
	room := listRoom(l.n+1, len(l.closed)+1)
	for i, f := range l.files {
		if _, err := f.WriteAt(make([]byte, room-l.room), l.room); err != nil {
			return IOError("extend", l.path(listNames[i]), err)
		}
	}
	l.room = room
	return nil
}

// note makes entries durable in both copies and applies them. The caller has called prepare for
// each closed segment, which provides the space for its deletion, too.
func (l *list) note(entries ...entry) error {
	if l.failed != nil {
		return l.failed
	}
	if l.files[0] == nil { // the disk was full during Open
		if err := l.rewrite(); err != nil {
			return err
		}
	}
	var b []byte
	for i := range entries {
		entries[i].durable = uint32(l.n)
		b = entries[i].append(b, l.generation, l.n+i)
	}
	if end := l.n + len(entries); end < l.written {
		// Overwrite what a note has left that failed because the disk was full.
		b = append(b, make([]byte, (l.written-end)*entrySize)...)
	}
	l.written = max(l.written, l.n+len(entries))
	at := int64(listHeaderSize + l.n*entrySize)
	for i, f := range l.files {
		if _, err := f.WriteAt(b, at); err != nil {
			return l.broken(IOError("write", l.path(listNames[i]), err))
		}
		if err := f.Sync(); err != nil {
			return l.broken(fmt.Errorf("sync %s: %w", l.path(listNames[i]), err))
		}
	}
	l.n += len(entries)
	l.take(entries...)
	return nil
}

// broken keeps an error after which the content of the copies is unknown. After KindFull the same
// entries are written again at the same place.
func (l *list) broken(err error) error {
	if sharedlog.KindOf(err) != sharedlog.KindFull {
		l.failed = err
	}
	return err
}
