package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

func putCRC(b []byte, salt uint64) {
	var s sealed
	binary.LittleEndian.PutUint32(b, s.crc(crc32.Checksum(b[FixedSize:], codec.Castagnoli), b, salt))
}

func sizeName(n int) string { return fmt.Sprintf("%dKiB", n>>10) }

func benchGroup(size int) sharedlog.Group {
	return sharedlog.Group{Writer: "bench", Number: 1, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"X/job/stream/17"}, Data: make([]byte, size)}}}
}

// group returns a group of two records with about size bytes of data, all of
// them n.
func group(n, size int) sharedlog.Group {
	b := bytes.Repeat([]byte{byte(n)}, size)
	return sharedlog.Group{Writer: "w", Number: uint64(n), Records: []sharedlog.Record{
		{Tags: []sharedlog.Tag{"x"}, Data: b[:size/2]},
		{Tags: []sharedlog.Tag{"x", "y"}, Data: b[size/2:]},
	}}
}

// log is a shard that a test writes, with its expected content.
type log struct {
	t        testing.TB
	s        *Store
	a        *Appender
	groups   []sharedlog.Group
	locs     []Location
	position uint64
}

var small = Options{SegmentSize: 8 << 10, FirstSize: 4 << 10}

func newLog(t testing.TB, fsys vfs.FS, o Options) *log {
	s, err := Open(fsys, "log", o)
	require.NoError(t, err)
	a, err := s.NewAppender(1)
	require.NoError(t, err)
	return &log{t: t, s: s, a: a}
}

// append appends groups of the given sizes in one call.
func (l *log) append(sizes ...int) error {
	frames := make([]*Frame, len(sizes))
	groups := make([]sharedlog.Group, len(sizes))
	for i, size := range sizes {
		groups[i] = group(len(l.groups)+i+1, size)
		frames[i] = new(Frame)
		frames[i].Encode(&groups[i], len(l.groups)+i == 0)
	}
	locs := make([]Location, len(sizes))
	n, err := l.a.Append(l.position, frames, locs)
	require.Equal(l.t, err == nil, n == len(sizes))
	l.groups = append(l.groups, groups[:n]...)
	l.locs = append(l.locs, locs[:n]...)
	l.position += 2 * uint64(n)
	return err
}

// check reads every group by its location.
func (l *log) check(s *Store) {
	var d Decoded
	var buf []byte
	for i, loc := range l.locs {
		var err error
		buf, err = s.Read(loc, buf, &d)
		require.NoError(l.t, err)
		require.Equal(l.t, l.groups[i], d.Group)
		require.Equal(l.t, uint64(2*i), d.Position)
		require.Equal(l.t, i == 0, d.Opens)
	}
}

// scan returns the groups found in all segments of the shard, in order, and why each scan stopped.
func scan(t testing.TB, s *Store) (groups []sharedlog.Group, locs []Location, found []Found) {
	for _, info := range s.Segments() {
		f, err := s.Scan(info.ID, func(loc Location, d *Decoded) error {
			g := d.Group
			g.Writer = strings.Clone(g.Writer)
			g.Records = nil
			for _, r := range d.Group.Records {
				c := sharedlog.Record{Data: bytes.Clone(r.Data)}
				for _, tag := range r.Tags {
					c.Tags = append(c.Tags, sharedlog.Tag(strings.Clone(string(tag))))
				}
				g.Records = append(g.Records, c)
			}
			groups, locs = append(groups, g), append(locs, loc)
			return nil
		})
		require.NoError(t, err)
		found = append(found, f)
	}
	return groups, locs, found
}

func (l *log) close() {
	require.NoError(l.t, l.a.Close())
	require.NoError(l.t, l.s.Close())
}

func reopen(t testing.TB, fsys vfs.FS, o Options) *Store {
	o.Listed = true
	s, err := Open(fsys, "log", o)
	require.NoError(t, err)
	return s
}

func TestAppendRollReadScan(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"mem": vfs.NewMem(), "os": vfs.OS} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			l := newLog(t, fsys, small)
			for i := range 40 {
				require.NoError(t, l.append(i*13, 500, 0+2*i))
			}
			require.NoError(t, l.append(50<<10), "longer than a segment")
			require.NoError(t, l.append(10, 20, 30))
			require.NoError(t, l.a.Sync())
			l.check(l.s)
			require.Greater(t, len(l.s.Segments()), 4)
			for i, loc := range l.locs[1:] {
				before := l.locs[i]
				if loc.ID == before.ID {
					require.EqualValues(t, before.End(), loc.Offset)
				} else {
					require.Equal(t, before.Number+1, loc.Number)
					require.EqualValues(t, HeaderSize, loc.Offset)
					require.Greater(t, before.End()+int64(loc.Size), int64(small.FirstSize), "it would have fitted")
				}
			}
			l.close()
			s := reopen(t, fsys, small)
			groups, locs, found := scan(t, s)
			require.Equal(t, l.groups, groups)
			require.Equal(t, l.locs, locs)
			for _, f := range found {
				require.Equal(t, io.EOF, f.Stopped)
			}
			require.EqualValues(t, l.position, found[len(found)-1].Next)
			l.check(s)
			require.NoError(t, s.Close())
		})
	}
}

func TestANewAppenderBeginsANewSegment(t *testing.T) {
	m := vfs.NewMem()
	l := newLog(t, m, small)
	require.NoError(t, l.append(100))
	l.close()
	l.s = reopen(t, m, small)
	a, err := l.s.NewAppender(1)
	require.NoError(t, err)
	require.Equal(t, ID{1, 2}, a.Active())
	l.a = a
	require.NoError(t, l.append(100))
	l.check(l.s)
	l.close()
}

func TestCloseSegment(t *testing.T) {
	m := vfs.NewMem()
	l := newLog(t, m, small)
	for range 10 {
		require.NoError(t, l.append(1000))
	}
	first := l.locs[0].ID
	var used int64
	for _, loc := range l.locs {
		if loc.ID == first {
			used = loc.End()
		}
	}
	_, err := l.s.Footer(first)
	require.ErrorIs(t, err, sharedlog.ErrInvalid)
	require.NoError(t, l.s.CloseSegment(first, used, []byte("the footer")))
	require.ErrorIs(t, l.s.CloseSegment(first, used, nil), sharedlog.ErrInvalid, "twice")
	l.check(l.s)
	for _, s := range []*Store{l.s, reopen(t, m.KillClone(), small)} {
		info := s.Segments()[0]
		require.Equal(t, Info{ID: first, State: StateClosed, Used: used, Size: used + 10 + trailerSize}, info)
		b, err := s.Footer(first)
		require.NoError(t, err)
		require.Equal(t, "the footer", string(b))
		l.check(s)
		_, _, found := scan(t, s)
		require.Equal(t, used, found[0].End)
		require.Equal(t, io.EOF, found[0].Stopped)
	}
	l.close()
}

// TestWhatIsCutOffStaysAway: frames after used are gone permanently.
func TestWhatIsCutOffStaysAway(t *testing.T) {
	m := vfs.NewMem()
	l := newLog(t, m, small)
	require.NoError(t, l.append(100, 100, 100))
	l.close()
	s := reopen(t, m, small)
	require.NoError(t, s.CloseSegment(l.locs[0].ID, l.locs[0].End(), nil))
	require.NoError(t, s.Close())
	s = reopen(t, m, small)
	groups, _, _ := scan(t, s)
	require.Equal(t, l.groups[:1], groups)
	_, err := s.Read(l.locs[1], nil, new(Decoded))
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
}

func TestDeleteAndRecycle(t *testing.T) {
	m := vfs.NewMem()
	l := newLog(t, m, small)
	for range 60 {
		require.NoError(t, l.append(1000))
	}
	first := l.locs[0].ID
	seg, err := l.s.acquire(first) // a reader
	require.NoError(t, err)
	require.NoError(t, l.s.Delete(first))
	_, err = l.s.Read(l.locs[0], nil, new(Decoded))
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
	b := make([]byte, l.locs[0].Size)
	_, err = seg.f.ReadAt(b, int64(l.locs[0].Offset))
	require.NoError(t, err)
	require.NoError(t, new(Decoded).Decode(b, seg.salt), "a record that is being read stays readable")
	require.Empty(t, l.s.spare, "a file that is being read is not used again")
	l.s.release(seg)

	// All further files are reused, and their old content is not found in their next use.
	last := l.locs[len(l.locs)-1].ID
	for _, info := range l.s.Segments() {
		if info.ID.Compare(last) < 0 {
			require.NoError(t, l.s.Delete(info.ID))
		}
	}
	kept := len(l.s.spare)
	require.Greater(t, kept, 2)
	require.NoError(t, l.a.Roll(1)) // may have been prepared before
	require.NoError(t, l.a.Roll(1))
	require.Less(t, len(l.s.spare), kept)
	f, err := l.s.Scan(l.a.Active(), func(Location, *Decoded) error { return errors.New("an old frame") })
	require.NoError(t, err)
	require.ErrorContains(t, f.Stopped, "checksum")
	require.EqualValues(t, HeaderSize, f.End)
	l.close()

	for _, spare := range []int{2, -1} { // kept over a restart, or not
		s := reopen(t, m, Options{Spare: spare})
		for _, info := range s.Segments() {
			require.NoError(t, s.Delete(info.ID))
		}
		names, err := m.List("log")
		require.NoError(t, err)
		require.Len(t, names, len(listNames)+max(spare, 0))
		require.NoError(t, s.Close())
	}
}

// TestTidy: files in use are kept, files that were not used since the last Tidy are removed, and
// few files are left when a store is closed.
func TestTidy(t *testing.T) {
	m := vfs.NewMem()
	l := newLog(t, m, small)
	for range 80 {
		require.NoError(t, l.append(1000))
	}
	require.NoError(t, l.a.Roll(1)) // nothing is being prepared from here on
	spare := func() (n int) {
		names, err := m.List("log")
		require.NoError(t, err)
		disk := int64(0)
		for _, name := range names {
			size, err := m.Stat(l.s.path(name))
			require.NoError(t, err)
			if !strings.HasPrefix(name, "LIST") {
				disk += size
			}
			if isSpare(name) {
				n++
			}
		}
		require.Len(t, l.s.spare, n)
		require.Equal(t, disk, l.s.Disk())
		return n
	}
	for _, info := range l.s.Segments() {
		if info.ID.Compare(l.a.Active()) < 0 {
			require.NoError(t, l.s.Delete(info.ID))
		}
	}
	all := spare()
	require.Greater(t, all, 6)
	require.NoError(t, l.s.Tidy())
	require.Equal(t, all, spare(), "they have just come")
	for range 3 {
		require.NoError(t, l.a.Roll(1))
	}
	used := all - spare()
	require.GreaterOrEqual(t, used, 2)
	require.NoError(t, l.s.Delete(ID{l.a.Active().Shard, l.a.Active().Number - 1}))
	before := spare()
	require.NoError(t, l.s.Tidy())
	require.Less(t, spare(), before, "not used since the last time")
	require.GreaterOrEqual(t, spare(), atHand)
	require.NoError(t, l.s.Tidy())
	require.NoError(t, l.s.Tidy())
	require.Equal(t, atHand, spare())
	l.close()
}

func TestOpenFilesAreBounded(t *testing.T) {
	m := vfs.NewMem()
	o := small
	o.OpenFiles = 2
	l := newLog(t, m, o)
	for range 60 {
		require.NoError(t, l.append(2000))
	}
	for i, loc := range l.locs {
		if i+1 < len(l.locs) && l.locs[i+1].ID != loc.ID {
			require.NoError(t, l.s.CloseSegment(loc.ID, loc.End(), nil))
		}
	}
	require.NoError(t, l.a.Roll(1))
	require.NoError(t, l.append(2000))
	require.LessOrEqual(t, len(l.a.dirty), 2, "without a Sync they must not pile up")
	l.check(l.s)
	open := 0
	for _, seg := range l.s.files {
		if seg.f != nil && seg.state == StateClosed {
			open++
		}
	}
	require.Equal(t, 2, open)
	l.close()
}

// TestEveryByteIsGuarded damages each byte of a frame in turn: Read and Scan name file and offset.
func TestEveryByteIsGuarded(t *testing.T) {
	m := vfs.NewMem()
	l := newLog(t, m, small)
	require.NoError(t, l.append(20, 20, 20))
	l.close()
	loc := l.locs[1]
	file := filepath.Join("log", "00000001-00000001.seg")
	f, err := m.OpenReadWrite(file)
	require.NoError(t, err)
	for off := int64(loc.Offset); off < loc.End(); off++ {
		var b [1]byte
		_, err := f.ReadAt(b[:], off)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{b[0] ^ 0x40}, off)
		require.NoError(t, err)
		s := reopen(t, m, small)
		_, err = s.Read(loc, nil, new(Decoded))
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
		where := fmt.Sprintf("%s, offset %d", file, loc.Offset)
		require.ErrorContains(t, err, where)
		groups, _, found := scan(t, s)
		require.Equal(t, l.groups[:1], groups)
		require.ErrorIs(t, found[0].Damage(), sharedlog.ErrCorrupt)
		require.ErrorContains(t, found[0].Damage(), where)
		require.NoError(t, s.Close())
		_, err = f.WriteAt(b[:], off)
		require.NoError(t, err)
	}
	// A damaged header damages the segment; another version is distinguished.
	_, err = f.WriteAt([]byte{0xff}, 0)
	require.NoError(t, err)
	s := reopen(t, m, small)
	require.Equal(t, StateDamaged, s.Segments()[0].State)
	_, err = s.Read(loc, nil, new(Decoded))
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	_, _, found := scan(t, s)
	require.ErrorIs(t, found[0].Damage(), sharedlog.ErrCorrupt)
	h := appendHeader(nil, ID{1, 1}, 1)
	h[8] = 2
	binary.LittleEndian.PutUint32(h[HeaderSize-4:], crc32.Checksum(h[:HeaderSize-4], codec.Castagnoli))
	_, err = f.WriteAt(h, 0)
	require.NoError(t, err)
	_, err = Open(m, "log", small)
	require.ErrorIs(t, err, sharedlog.ErrVersion)
}

// TestFullDisk fails every write of a history in turn, whole or in part, with a full disk: refused
// groups are not there, accepted ones are, and the next append continues at the same place.
func TestFullDisk(t *testing.T) {
	for _, grow := range []bool{false, true} {
		for _, part := range []int{0, 1, 40, 700, 1500} {
			refused := 0
			for n := int64(1); ; n++ {
				m := vfs.NewMem()
				failed := false
				hook := vfs.FailAt(n, func(op vfs.Op) bool { return op.Kind == vfs.OpWrite }, &vfs.ShortWrite{N: part, Err: syscall.ENOSPC})
				fsys := vfs.Inject(m, func(op vfs.Op) error {
					err := hook(op)
					var short *vfs.ShortWrite
					if errors.As(err, &short) {
						failed = true
						return &vfs.ShortWrite{N: min(short.N, op.Len), Err: short.Err}
					}
					return err
				})
				o := small
				o.Grow = grow
				s, err := Open(fsys, "log", o)
				if err != nil {
					require.ErrorIs(t, err, sharedlog.ErrFull)
					s, err = Open(fsys, "log", o)
				}
				require.NoError(t, err)
				a, err := s.NewAppender(1)
				if err != nil {
					require.ErrorIs(t, err, sharedlog.ErrFull)
					a, err = s.NewAppender(1)
					require.NoError(t, err)
				}
				l := &log{t: t, s: s, a: a}
				for range 12 {
					if err := l.append(600, 600, 600); err != nil {
						require.ErrorIs(t, err, sharedlog.ErrFull)
						refused++
						groups, _, _ := scan(t, l.s)
						require.Equal(t, l.groups, groups, "what was refused is not there")
						require.NoError(t, l.append(300), "there is space again")
					}
				}
				l.check(s)
				require.NoError(t, l.a.Sync())
				require.NoError(t, s.SaveList())
				l.close()
				s = reopen(t, m, o)
				groups, locs, _ := scan(t, s)
				require.Equal(t, l.locs, locs)
				require.Equal(t, l.groups, groups)
				require.NoError(t, s.Close())
				if !failed {
					break
				}
			}
			require.Greater(t, refused, 5)
		}
	}
}

// Spare files are removed for writes on a full disk, by the store or by others, and while the disk
// is full the files of deleted segments are not kept.
func TestFullDiskTakesSpareFiles(t *testing.T) {
	for _, grow := range []bool{false, true} {
		m := vfs.NewMem()
		full := false
		fsys := vfs.Inject(m, func(op vfs.Op) error {
			switch {
			case op.Kind == vfs.OpRemove && isSpare(filepath.Base(op.Path)):
				full = false
			case full && (op.Kind == vfs.OpWrite || op.Kind == vfs.OpCreate):
				return syscall.ENOSPC
			}
			return nil
		})
		o := small
		o.Grow = grow
		s, err := Open(fsys, "log", o)
		require.NoError(t, err)
		a, err := s.NewAppender(1)
		require.NoError(t, err)
		l := &log{t: t, s: s, a: a}
		spare := func() {
			for range 40 {
				require.NoError(t, l.append(1000))
			}
			require.NoError(t, l.a.Roll(1))
			for _, info := range l.s.Segments() {
				if info.ID.Compare(l.a.Active()) < 0 {
					require.NoError(t, l.s.Delete(info.ID))
				}
			}
			require.NotEmpty(t, l.s.spare)
		}
		forget := func() { l.groups, l.locs, l.position = nil, nil, 0 }

		spare()
		forget()
		full = true
		require.NoError(t, l.append(300, 200), "grow %v", grow)
		require.False(t, full)
		require.Empty(t, l.s.spare)
		require.NoError(t, l.a.Roll(1))
		require.NoError(t, l.s.Delete(ID{1, l.a.Active().Number - 1}))
		forget()
		require.Empty(t, l.s.spare, "nothing is kept behind a full disk")

		require.NoError(t, l.s.Tidy())
		spare()
		forget()
		full = true
		f, err := l.s.FS().Create("log/other")
		require.NoError(t, err, "others on the same disk")
		_, err = f.WriteAt(make([]byte, 100), 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Empty(t, l.s.spare)

		require.NoError(t, l.append(400))
		full = true
		require.ErrorIs(t, l.append(500), sharedlog.ErrFull, "nothing is left to give")
		full = false
		require.NoError(t, l.append(600))
		l.check(l.s)
		l.close()
	}
}

// TestOtherErrorsAreForGood: after a failed write or sync nothing is accepted any more, since the
// content of the file is unknown.
func TestOtherErrorsAreForGood(t *testing.T) {
	for _, kind := range []vfs.OpKind{vfs.OpWrite, vfs.OpSync} {
		armed := false
		m := vfs.NewMem()
		fsys := vfs.Inject(m, func(op vfs.Op) error {
			if armed && op.Kind == kind {
				armed = false
				return syscall.EIO
			}
			return nil
		})
		o := small
		o.FirstSize = o.SegmentSize
		l := newLog(t, fsys, o)
		require.NoError(t, l.append(100))
		armed = true
		err := errors.Join(l.append(100), l.a.Sync())
		require.ErrorIs(t, err, syscall.EIO)
		require.ErrorIs(t, l.append(100), syscall.EIO)
		require.ErrorIs(t, l.a.Sync(), syscall.EIO)
		l.check(l.s)
		l.close()
	}
}

func TestAGapOfPositionsIsDamage(t *testing.T) {
	l := newLog(t, vfs.NewMem(), small)
	require.NoError(t, l.append(10, 10))
	l.position += 3
	require.NoError(t, l.append(10))
	groups, _, found := scan(t, l.s)
	require.Equal(t, l.groups[:2], groups)
	require.EqualValues(t, 4, found[0].Next)
	require.ErrorContains(t, found[0].Damage(), "a frame of position 7 instead of 4")
	l.close()
}

// cut is the state of a history when the power fails: at the start of one of its calls to the file
// system.
type cut struct {
	after   *vfs.Mem
	synced  int // groups of which Sync has returned
	written int // groups of which Append has returned
	closed  map[ID]int64
	deleted map[ID]bool // Delete was called
	gone    map[ID]bool // Delete has returned
	listed  bool        // Open has returned: there is a list
}

// TestPowerCutAndKill cuts the power, or kills the process, in the middle of random histories of
// appends, syncs, closings and deletions.
func TestPowerCutAndKill(t *testing.T) {
	torn, inside := 0, 0
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 7))
		m := vfs.NewMem()
		var now cut
		var at cut
		var mu sync.Mutex // another goroutine prepares the next segment
		calls, last := 0, rng.IntN(150)
		kill := rng.IntN(4) == 0
		crash := func() {
			at = now
			at.closed, at.deleted, at.gone = maps.Clone(now.closed), maps.Clone(now.deleted), maps.Clone(now.gone)
			if kill {
				at.after, at.synced = m.KillClone(), now.written
			} else {
				at.after = m.CrashClone(rng)
			}
		}
		now = cut{closed: map[ID]int64{}, deleted: map[ID]bool{}, gone: map[ID]bool{}}
		set := func(change func()) { mu.Lock(); change(); mu.Unlock() }
		fsys := vfs.Inject(m, func(vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls == last {
				crash()
			}
			return nil
		})
		o := small
		o.Grow = rng.IntN(3) == 0
		o.SegmentSize = 4 << 10
		l := newLog(t, fsys, o)
		set(func() { now.listed = true })
		choose := rand.New(rand.NewPCG(seed, 8)) // rng is used by crash
		for range choose.IntN(60) {
			switch choose.IntN(6) {
			case 0:
				require.NoError(t, l.a.Sync())
				set(func() { now.synced = len(l.groups) })
			case 1, 2: // close the oldest full segment
				for i, loc := range l.locs {
					if _, done := now.closed[loc.ID]; !done && loc.ID != l.a.Active() && l.locs[i+1].ID != loc.ID {
						require.NoError(t, l.s.CloseSegment(loc.ID, loc.End(), footerOf(loc.ID)))
						set(func() { now.closed[loc.ID] = loc.End() })
						break
					}
				}
			case 3: // delete the oldest closed one
				for _, loc := range l.locs {
					if _, ok := now.closed[loc.ID]; ok && !now.deleted[loc.ID] && choose.IntN(2) == 0 {
						set(func() { now.deleted[loc.ID] = true })
						require.NoError(t, l.s.Delete(loc.ID))
						set(func() { now.gone[loc.ID] = true })
						break
					}
				}
			default:
				require.NoError(t, l.append(choose.IntN(900), choose.IntN(900)))
				set(func() { now.written = len(l.groups) })
			}
		}
		set(func() {
			if at.after == nil {
				crash()
			} else {
				inside++
			}
		})
		l.close()
		torn += l.checkAfter(seed, at, o)
	}
	require.Greater(t, torn, 40, "the test never met a torn tail")
	require.Greater(t, inside, 100)
}

func footerOf(id ID) []byte { return bytes.Repeat([]byte(id.String()), 60) } // more than a sector

// checkAfter opens what a power failure has left. It returns the number of segments with a torn
// tail.
func (l *log) checkAfter(seed uint64, at cut, o Options) (torn int) {
	t := l.t
	o.Listed = at.listed
	s, err := Open(at.after, "log", o)
	require.NoError(t, err, "seed %d", seed)
	groups, locs, found := scan(t, s)
	places := map[Location]int{}
	ends := map[ID]int64{}
	for i, loc := range l.locs {
		places[loc] = i
		ends[loc.ID] = loc.End()
	}
	there := map[int]bool{}
	for i, loc := range locs {
		n, ok := places[loc]
		require.True(t, ok, "seed %d: a frame that was never appended", seed)
		require.Equal(t, l.groups[n], groups[i], "seed %d", seed)
		there[n] = true
	}
	for n, loc := range l.locs {
		_, done := at.closed[loc.ID]
		if !at.deleted[loc.ID] && (n < at.synced || done) {
			require.True(t, there[n], "seed %d: group %d of %d synced (%d written) is lost", seed, n, at.synced, at.written)
		}
	}
	for _, f := range found {
		if f.Stopped != io.EOF {
			torn++
		}
	}
	for _, info := range s.Segments() {
		require.NotEqual(t, StateDamaged, info.State, "seed %d", seed)
		require.NoError(t, info.Damage, "seed %d", seed)
		require.Empty(t, info.Repaired, "seed %d", seed)
		require.NotContains(t, at.gone, info.ID, "seed %d", seed)
		if info.State == StateClosed { // possibly by a call that never returned
			require.Equal(t, ends[info.ID], info.Used, "seed %d", seed)
			b, err := s.Footer(info.ID)
			require.NoError(t, err, "seed %d", seed)
			require.Equal(t, footerOf(info.ID), b)
			for n, loc := range l.locs {
				if loc.ID == info.ID {
					require.True(t, there[n], "seed %d: a closed segment has lost a group", seed)
				}
			}
		} else {
			require.NotContains(t, at.closed, info.ID, "seed %d", seed)
		}
	}
	require.NoError(t, s.Close())
	return torn
}

// A Sync during a write does not count for that write: the next Sync must sync it.
func TestASyncDuringAWriteIsNotTheLast(t *testing.T) {
	disk := vfs.NewMem()
	var a *Appender
	synced := 0
	fsys := vfs.Inject(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && a != nil && synced == 0 {
			synced++
			require.NoError(t, a.Sync())
		}
		return nil
	})
	l := newLog(t, fsys, Options{Grow: true})
	require.NoError(t, l.append(10))
	require.NoError(t, l.a.Sync())
	a = l.a
	require.NoError(t, l.append(10))
	require.Equal(t, 1, synced)
	require.NoError(t, l.a.Sync())
	for seed := range uint64(20) {
		l.check(reopen(t, disk.CrashClone(rand.New(rand.NewPCG(seed, 0))), Options{Grow: true}))
	}
}
