package segment

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// closedLog returns a log with several closed segments and an open one, and the groups that were
// written.
func closedLog(t testing.TB, fsys vfs.FS) *log {
	o := small
	o.Grow = true
	salt := uint64(0)
	o.Salt = func() uint64 { salt++; return salt }
	l := newLog(t, fsys, o)
	for l.a.Active().Number < 5 {
		require.NoError(t, l.append(700))
	}
	l.closeFull()
	require.NoError(t, l.a.Close())
	require.NoError(t, l.s.Close())
	return l
}

// closeFull closes all segments but the last.
func (l *log) closeFull() {
	for i, loc := range l.locs {
		if i+1 < len(l.locs) && l.locs[i+1].ID != loc.ID {
			require.NoError(l.t, l.s.CloseSegment(loc.ID, loc.End(), footerOf(loc.ID)))
		}
	}
}

func (l *log) file(number uint32) string {
	return filepath.Join("log", ID{1, number}.fileName())
}

// change replaces the content of a file by change's result; nil removes the file.
func change(t testing.TB, fsys vfs.FS, path string, change func(b []byte) []byte) {
	f, err := fsys.Open(path)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	b := make([]byte, size)
	if size > 0 {
		_, err = f.ReadAt(b, 0)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	if b = change(b); b == nil {
		require.NoError(t, fsys.Remove(path))
		return
	}
	f, err = fsys.Create(path)
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, errors.Join(err, f.Sync(), f.Close()))
}

func flip(off int) func([]byte) []byte {
	return func(b []byte) []byte {
		if off < 0 {
			off += len(b)
		}
		b[off] ^= 4
		return b
	}
}

// readable counts the groups of closed segments that can be read. An error must be one of damage,
// and name the segment's file and an offset.
func (l *log) readable(t testing.TB, s *Store) (n int, bad map[ID]bool) {
	bad = map[ID]bool{}
	closed := map[ID]bool{}
	for _, info := range s.Segments() {
		if info.State != StateClosed {
			continue
		}
		closed[info.ID] = true
		if b, err := s.Footer(info.ID); err != nil {
			require.ErrorIs(t, err, sharedlog.ErrCorrupt)
			require.ErrorContains(t, err, fmt.Sprintf("%s, offset ", filepath.Join("log", info.ID.fileName())))
			bad[info.ID] = true
		} else {
			require.Equal(t, string(footerOf(info.ID)), string(b))
		}
	}
	for i, loc := range l.locs {
		if !closed[loc.ID] {
			continue
		}
		var d Decoded
		_, err := s.Read(loc, nil, &d)
		if err != nil {
			require.ErrorIs(t, err, sharedlog.ErrCorrupt)
			require.ErrorContains(t, err, fmt.Sprintf("%s, offset ", filepath.Join("log", loc.fileName())))
			bad[loc.ID] = true
			continue
		}
		require.Equal(t, l.groups[i], d.Group)
		n++
	}
	return n, bad
}

// Damage of a closed segment's file is repaired, or it is an error. The segment is never taken for
// a deleted one, and no file is removed.
func TestTheListIsBelieved(t *testing.T) {
	for name, c := range map[string]struct {
		damage   func(b []byte) []byte
		repaired string // the damage, if everything can still be read
		lost     string // otherwise the error
	}{
		"magic":             {flip(0), "header", ""},
		"number":            {flip(16), "header", ""},
		"salt":              {flip(26), "header", ""},
		"header's checksum": {flip(38), "header", ""},
		"no header":         {func(b []byte) []byte { clear(b[:HeaderSize]); return b }, "header", ""},
		"trailer":           {flip(-40), "trailer", ""},
		"trailer's last":    {flip(-1), "trailer", ""},
		"both":              {func(b []byte) []byte { return flip(3)(flip(-3)(b)) }, "header, trailer", ""},
		"cut by a byte":     {func(b []byte) []byte { return b[:len(b)-1] }, "trailer, length", ""},
		"no trailer":        {func(b []byte) []byte { return b[:len(b)-trailerSize] }, "trailer, length", ""},
		"longer":            {func(b []byte) []byte { return append(b, 1, 2, 3) }, "length", ""},
		"first frame":       {flip(HeaderSize + 3), "", "checksum"},
		"footer":            {flip(-50), "", "footer"},
		"header and footer": {func(b []byte) []byte { return flip(3)(flip(-50)(b)) }, "", "footer"},
		"half":              {func(b []byte) []byte { return b[:len(b)/2] }, "", "footer"},
		"empty":             {func([]byte) []byte { return []byte{} }, "", "footer"},
		"missing":           {func([]byte) []byte { return nil }, "", "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			m := vfs.NewMem()
			l := closedLog(t, m)
			change(t, m, l.file(2), c.damage)
			before, err := m.List("log")
			require.NoError(t, err)
			for range 2 { // a second Open has the same result
				s := reopen(t, m, small)
				var info Info
				for _, i := range s.Segments() {
					if i.ID.Number == 2 {
						info = i
					}
				}
				require.Equal(t, StateClosed, info.State)
				n, bad := l.readable(t, s)
				if c.lost == "" {
					require.NoError(t, info.Damage)
					require.Contains(t, info.Repaired, c.repaired)
					require.Equal(t, l.first(5), n)
					require.Empty(t, bad)
					c.repaired = ""
				} else {
					require.Less(t, n, len(l.groups)+1)
					require.Equal(t, map[ID]bool{{1, 2}: true}, bad)
					for _, i := range s.Segments() {
						if i.ID.Number == 2 {
							require.ErrorContains(t, i.Damage, c.lost)
						} else {
							require.NoError(t, i.Damage)
						}
					}
				}
				require.NoError(t, s.Close())
				after, err := m.List("log")
				require.NoError(t, err)
				require.Equal(t, before, after, "no file goes")
			}
		})
	}
}

// A file under another segment's name is not used for that segment, and is not lost.
func TestSwappedFiles(t *testing.T) {
	m := vfs.NewMem()
	l := closedLog(t, m)
	swap := func() {
		require.NoError(t, m.Rename(l.file(1), "log/x"))
		require.NoError(t, m.Rename(l.file(2), l.file(1)))
		require.NoError(t, m.Rename("log/x", l.file(2)))
	}
	swap()
	s := reopen(t, m, small)
	_, bad := l.readable(t, s)
	require.Equal(t, map[ID]bool{{1, 1}: true, {1, 2}: true}, bad)
	require.ErrorContains(t, s.Segments()[0].Damage, "it belongs to segment 00000001-00000002")
	require.NoError(t, s.Close())
	swap()
	s = reopen(t, m, small)
	n, bad := l.readable(t, s)
	require.Equal(t, l.first(5), n)
	require.Empty(t, bad)
	require.NoError(t, s.Close())
}

// TestRandomDamage damages one or two random files of a closed store: a byte, the end, the name or
// the whole file. Every frame of a closed segment can then be read, or is reported as damage with
// file and offset; all frames in undamaged files can be read; no file is removed.
func TestRandomDamage(t *testing.T) {
	rounds := 10_000
	if os.Getenv("TAILRACE_SOAK") != "" {
		rounds = 1_000_000
	}
	m := vfs.NewMem()
	l := closedLog(t, m)
	refused, repaired, lost := 0, 0, 0
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 22))
		after := m.KillClone()
		names, err := after.List("log")
		require.NoError(t, err)
		damaged := map[ID]bool{}
		lists := 0
		for range 1 + rng.IntN(2) {
			path := filepath.Join("log", names[rng.IntN(len(names))])
			if id, ok := parseName(filepath.Base(path)); ok {
				damaged[id] = true
			} else {
				lists++
			}
			if _, err := after.Stat(path); err != nil {
				continue
			}
			switch n := rng.IntN(8); n {
			case 0:
				require.NoError(t, after.Remove(path))
			case 1:
				change(t, after, path, func(b []byte) []byte { return b[:rng.IntN(len(b)+1)] })
			case 2, 3:
				other := filepath.Join("log", names[rng.IntN(len(names))])
				if _, err := after.Stat(other); err != nil || other == path {
					continue
				}
				if id, ok := parseName(filepath.Base(other)); ok {
					damaged[id] = true
				} else {
					lists++
				}
				if n == 3 { // one under the other's name
					require.NoError(t, after.Rename(other, path))
					continue
				}
				require.NoError(t, after.Rename(path, "log/x"))
				require.NoError(t, after.Rename(other, path))
				require.NoError(t, after.Rename("log/x", other))
			default:
				change(t, after, path, func(b []byte) []byte {
					if len(b) > 0 {
						off := rng.IntN(len(b))
						if n > 5 { // near an end
							off = min(off%64, len(b)-1)
							if n > 6 {
								off = len(b) - 1 - off
							}
						}
						b[off] ^= 1 << rng.IntN(8)
					}
					return b
				})
			}
		}
		before, err := after.List("log")
		require.NoError(t, err)
		for range 1 + seed%4/3 { // a second Open has the same result
			o := small
			o.Listed = true
			s, err := Open(after, "log", o)
			if lists > 1 && err != nil {
				require.ErrorIs(t, err, sharedlog.ErrCorrupt, "seed %d", seed)
				refused++
				break
			}
			require.NoError(t, err, "seed %d", seed)
			n, bad := l.readable(t, s)
			for id := range bad {
				require.True(t, damaged[id], "seed %d: %v was not damaged", seed, id)
			}
			want := 0
			for _, loc := range l.locs {
				if !damaged[loc.ID] && loc.Number < 5 {
					want++
				}
			}
			require.GreaterOrEqual(t, n, want, "seed %d", seed)
			for _, info := range s.Segments() {
				if info.Repaired != "" {
					repaired++
				}
			}
			lost += len(bad)
			require.NoError(t, s.Close())
		}
		for _, name := range before {
			_, err := after.Stat(filepath.Join("log", name))
			require.NoError(t, err, "seed %d: %s has gone", seed, name)
		}
	}
	t.Logf("%d rounds: %d not opened, %d repaired, %d damaged", rounds, refused, repaired, lost)
	require.NotZero(t, refused)
	require.NotZero(t, repaired)
	require.NotZero(t, lost)
}

// Damage that is found while the store is used is reported once.
func TestDamageIsTold(t *testing.T) {
	m := vfs.NewMem()
	l := closedLog(t, m)
	var told []error
	o := small
	o.Listed = true
	o.Damaged = func(_ ID, err error) { told = append(told, err) }
	bad := false
	fsys := vfs.Inject(m, func(op vfs.Op) error {
		if bad && op.Kind == vfs.OpRead && op.Path == l.file(3) {
			return syscall.EIO
		}
		return nil
	})
	s, err := Open(fsys, "log", o)
	require.NoError(t, err)
	change(t, m, l.file(1), flip(HeaderSize+9))
	require.NoError(t, m.Remove(l.file(2)))
	bad = true
	_, damaged := l.readable(t, s)
	require.Equal(t, map[ID]bool{{1, 1}: true, {1, 2}: true, {1, 3}: true}, damaged)
	l.readable(t, s)
	require.Len(t, told, 3)
	for _, err := range told {
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	}
	require.NoError(t, s.Close())
}

// TestEveryByteOfTheList damages each byte of either copy, cuts it at each place and removes it:
// the other copy suffices.
func TestEveryByteOfTheList(t *testing.T) {
	m := vfs.NewMem()
	l := closedLog(t, m)
	s := reopen(t, m, small)
	require.NoError(t, s.Delete(ID{1, 3}))
	want := s.Segments()
	require.NoError(t, s.Close())
	used := listHeaderSize + 5*entrySize
	check := func(after *vfs.Mem, what string) {
		for range 2 {
			s := reopen(t, after, small)
			require.Equal(t, want, s.Segments(), what)
			require.NoError(t, s.Close())
		}
	}
	for _, name := range listNames {
		path := filepath.Join("log", name)
		after := m.KillClone()
		change(t, after, path, func([]byte) []byte { return nil })
		check(after, name+" is missing")
		for off := range used {
			after := m.KillClone()
			change(t, after, path, flip(off))
			check(after, fmt.Sprintf("%s, byte %d", name, off))
			if off%7 == 0 {
				after = m.KillClone()
				change(t, after, path, func(b []byte) []byte { return b[:off] })
				check(after, fmt.Sprintf("%s, cut at %d", name, off))
			}
		}
	}

	// Both copies of an entry, or of the header, or both files are damaged: that is an error, and
	// nothing is changed.
	for _, off := range []int{4, listHeaderSize + 8, listHeaderSize + 3*entrySize} {
		after := m.KillClone()
		for _, name := range listNames {
			change(t, after, filepath.Join("log", name), flip(off))
		}
		o := small
		o.Listed = true
		_, err := Open(after, "log", o)
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
		require.ErrorContains(t, err, "LIST-1, offset")
	}
	after := m.KillClone()
	for _, name := range listNames {
		require.NoError(t, after.Remove(filepath.Join("log", name)))
	}
	o := small
	o.Listed = true
	_, err := Open(after, "log", o)
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	require.ErrorContains(t, err, "missing")
	o.Listed = false // a directory that is older than the list
	s, err = Open(after, "log", o)
	require.NoError(t, err)
	require.Equal(t, want, s.Segments())
	require.NoError(t, s.Close())
	check(after, "it got a list")
	require.Len(t, l.locs, len(l.groups))
}

// The list grows with every segment that is closed or deleted, and is rewritten from time to time;
// its content is always correct.
func TestTheListIsRewritten(t *testing.T) {
	m := vfs.NewMem()
	o := small
	o.Grow, o.SegmentSize = true, 256
	l := newLog(t, m, o)
	var closed []ID
	longest := int64(0)
	for range 3000 {
		require.NoError(t, l.append(300))
		if n := len(l.locs); n > 1 {
			id := l.locs[n-2].ID
			require.NoError(t, l.s.CloseSegment(id, l.locs[n-2].End(), nil))
			closed = append(closed, id)
		}
		if len(closed) > 20 {
			require.NoError(t, l.s.Delete(closed[:7]...))
			closed = closed[7:]
		}
		size, err := m.Stat("log/LIST-1")
		require.NoError(t, err)
		longest = max(longest, size)
	}
	require.Less(t, longest, int64(3*listGrow))
	require.Greater(t, l.s.list.generation, uint64(3))
	for _, after := range []*vfs.Mem{m.KillClone(), m.CrashClone(rand.New(rand.NewPCG(1, 1)))} {
		var there []ID
		for _, info := range reopen(t, after, o).Segments() {
			require.NoError(t, info.Damage)
			if info.State == StateClosed {
				there = append(there, info.ID)
			}
		}
		require.Equal(t, closed, there)
	}
	l.close()
}

// Segments can be deleted when no file on the disk can grow.
func TestDeleteOnAFullDisk(t *testing.T) {
	m := vfs.NewMem()
	o := small
	o.Grow = true
	l := newLog(t, m, o)
	for len(l.s.Segments()) < 600 {
		require.NoError(t, l.append(3000))
	}
	l.closeFull()
	_, used := m.Used()
	m.SetCapacity(used)
	require.Error(t, l.append(8000))
	infos := l.s.Segments()
	for _, info := range infos {
		if info.State == StateClosed {
			require.NoError(t, l.s.Delete(info.ID))
			_, left := m.Used()
			m.SetCapacity(left) // others use the freed space at once
		}
	}
	for _, info := range l.s.Segments() {
		require.Equal(t, StateOpen, info.State)
	}
	_, left := m.Used()
	require.Less(t, left, used/10)
	m.SetCapacity(0)
	require.NoError(t, l.append(8000))
	l.close()
	for _, info := range reopen(t, m, o).Segments() {
		require.Equal(t, StateOpen, info.State)
	}
}

// A directory without a list is opened on a full disk, and segments can be deleted; the list is
// created when there is room.
func TestNoListOnAFullDisk(t *testing.T) {
	m := vfs.NewMem()
	l := closedLog(t, m)
	for _, name := range listNames {
		require.NoError(t, m.Remove(filepath.Join("log", name)))
	}
	_, used := m.Used()
	m.SetCapacity(used)
	o := small
	o.Grow, o.Listed = true, false
	s, err := Open(m, "log", o)
	require.NoError(t, err)
	require.ErrorIs(t, s.SaveList(), sharedlog.ErrFull)
	require.ErrorIs(t, s.CloseSegment(ID{1, 5}, HeaderSize, nil), sharedlog.ErrFull)
	require.NoError(t, s.Delete(ID{1, 1}, ID{1, 2}))
	m.SetCapacity(0)
	require.NoError(t, s.SaveList())
	require.NoError(t, s.Close())
	o.Listed = true
	var left []ID
	for _, info := range reopen(t, m, o).Segments() {
		require.NoError(t, info.Damage)
		left = append(left, info.ID)
	}
	require.Equal(t, []ID{{1, 3}, {1, 4}, {1, 5}}, left)
	require.NotEmpty(t, l.locs)
}

// An entry that could not be written on a full disk does not appear later, after entries that were
// written then.
func TestARefusedNote(t *testing.T) {
	m := vfs.NewMem()
	full := false
	fsys := vfs.Inject(m, func(op vfs.Op) error {
		if full && op.Kind == vfs.OpWrite && op.Path == filepath.Join("log", listNames[1]) {
			return syscall.ENOSPC // like a file system that never overwrites in place
		}
		return nil
	})
	l := closedLog(t, fsys)
	l.s = reopen(t, fsys, small)
	full = true
	require.ErrorIs(t, l.s.Delete(ID{1, 1}, ID{1, 2}, ID{1, 3}), sharedlog.ErrFull)
	n, bad := l.readable(t, l.s)
	require.Equal(t, l.first(5), n, "nothing was deleted")
	require.Empty(t, bad)
	full = false
	require.NoError(t, l.s.Delete(ID{1, 4}))
	require.NoError(t, l.s.Close())
	s := reopen(t, m, small)
	n, bad = l.readable(t, s)
	require.Equal(t, l.first(4), n)
	require.Empty(t, bad)
	require.NoError(t, s.Close())
}

// TestErrorsAtEveryCall fails each call of a history of closings and deletions in turn: whatever
// the store returns, closed segments exist when it is opened again, and deleted ones do not.
func TestErrorsAtEveryCall(t *testing.T) {
	for n := int64(1); ; n++ {
		m := vfs.NewMem()
		var failed atomic.Bool
		fail := vfs.FailAt(n, func(op vfs.Op) bool {
			return op.Kind == vfs.OpWrite || op.Kind == vfs.OpSync || op.Kind == vfs.OpSyncDir || op.Kind == vfs.OpRename ||
				op.Kind == vfs.OpCreate || op.Kind == vfs.OpTruncate || op.Kind == vfs.OpRemove
		}, errors.New("broken"))
		fsys := vfs.Inject(m, func(op vfs.Op) error {
			err := fail(op)
			if err != nil {
				failed.Store(true)
			}
			return err
		})
		o := small
		o.Grow = true
		s, err := Open(fsys, "log", o)
		if err != nil {
			require.True(t, failed.Load())
			continue
		}
		a, err := s.NewAppender(1)
		if err != nil {
			require.True(t, failed.Load())
			continue
		}
		l := &log{t: t, s: s, a: a}
		ok := true
		for ok && len(l.groups) < 20 {
			ok = l.append(900) == nil
		}
		closed, gone := map[ID]bool{}, map[ID]bool{}
		for i, loc := range l.locs {
			if i+1 < len(l.locs) && l.locs[i+1].ID != loc.ID && s.CloseSegment(loc.ID, loc.End(), footerOf(loc.ID)) == nil {
				closed[loc.ID] = true
			}
		}
		tried := map[ID]bool{}
		for id := range closed {
			if id.Number%2 == 0 {
				tried[id] = true
				if s.Delete(id) == nil {
					gone[id] = true
				}
			}
		}
		for range 2 {
			after := reopen(t, m.KillClone(), o)
			there := map[ID]bool{}
			for _, info := range after.Segments() {
				require.NoError(t, info.Damage, "call %d", n)
				there[info.ID] = info.State == StateClosed
			}
			for id := range closed {
				require.True(t, there[id] || tried[id], "call %d: segment %v was closed", n, id)
				require.False(t, there[id] && gone[id], "call %d: segment %v was deleted", n, id)
			}
			require.NoError(t, after.Close())
		}
		_ = a.Close()
		_ = s.Close()
		if !failed.Load() {
			require.Greater(t, n, int64(40))
			return
		}
	}
}

// A directory that is older than the list: the segments in it are listed, and damaged ones are
// listed as such when the caller says that they must have been closed.
func TestAdopt(t *testing.T) {
	m := vfs.NewMem()
	l := closedLog(t, m)
	for _, name := range listNames {
		require.NoError(t, m.Remove(filepath.Join("log", name)))
	}
	change(t, m, l.file(2), flip(-5)) // the trailer
	change(t, m, l.file(3), flip(5))  // the header
	s, err := Open(m, "log", small)
	require.NoError(t, err)
	states := func(s *Store) (states []State) {
		for _, info := range s.Segments() {
			states = append(states, info.State)
		}
		return states
	}
	require.Equal(t, []State{StateClosed, StateOpen, StateDamaged, StateClosed, StateOpen}, states(s))
	require.NoError(t, s.Adopt(ID{1, 2}))
	require.NoError(t, s.Adopt(ID{1, 3}))
	for range 2 {
		require.Equal(t, []State{StateClosed, StateClosed, StateClosed, StateClosed, StateOpen}, states(s))
		info := s.Segments()[1]
		require.ErrorIs(t, info.Damage, sharedlog.ErrCorrupt)
		require.Equal(t, uint64(2*l.first(2)), info.Extent.From)
		require.Equal(t, uint64(2*l.first(3)), info.Extent.To)
		require.ErrorIs(t, s.Segments()[2].Damage, sharedlog.ErrCorrupt)
		_, err = s.Footer(ID{1, 2})
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
		_, err = s.Footer(ID{1, 3})
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
		require.NoError(t, s.Close())
		s = reopen(t, m, small)
	}
	require.NoError(t, s.Close())
}

// first returns which group is the first of a segment.
func (l *log) first(number uint32) int {
	for i, loc := range l.locs {
		if loc.Number == number {
			return i
		}
	}
	return -1
}

// The bytes of the list outlive the program.
func TestListBytes(t *testing.T) {
	e := entry{kind: entryClosed, id: ID{1, 2}, salt: 0x0807060504030201, footer: trailer{0x1000, 0x200, 0xaabbccdd}, extent: Extent{3, 7, 11, 15}, durable: 1}
	b := e.append(listHeader(5), 5, 1)
	require.Equal(t, strings.Join([]string{
		"5441494c4c535431", "01000000", "00000000", "0500000000000000", "00000000", "44f5ce33",
		"01000000", "01000000", "02000000", "00100000", "0102030405060708", "00020000", "ddccbbaa",
		"0300000000000000", "0700000000000000", "0b00000000000000", "0f00000000000000", "01000000", "68118885",
	}, ""), hex.EncodeToString(b))
	var d entry
	require.True(t, d.decode(b[listHeaderSize:], 5, 1))
	require.Equal(t, e, d)
	require.False(t, d.decode(b[listHeaderSize:], 5, 2), "an entry means something at its own place only")
	require.False(t, d.decode(b[listHeaderSize:], 6, 1))
}
