package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

func noPace(int) error { return nil }

// mend rewrites a segment with the groups that it had.
func (l *log) mend(s *Store, number uint32) error {
	m, err := s.Mend(ID{1, number})
	if err != nil {
		return err
	}
	for i, loc := range l.locs {
		if loc.Number != number {
			continue
		}
		var f Frame
		f.Encode(&l.groups[i], i == 0)
		got, err := m.Append(2*uint64(i), &f)
		if err != nil {
			return errors.Join(err, m.Abort())
		}
		require.Equal(l.t, loc, got)
	}
	return m.Commit(footerOf(ID{1, number}))
}

// damages are ways to lose the content of a segment's file.
var damages = map[string]func(b []byte) []byte{
	"frame":   flip(HeaderSize + 30),
	"footer":  flip(-50),
	"half":    func(b []byte) []byte { return b[:len(b)/2] },
	"missing": func([]byte) []byte { return nil },
}

// A reader has found a group with the old footer, and reads it after the segment was rewritten
// without a trimmed group: it gets an error and no other group.
func TestReadBehindAMend(t *testing.T) {
	l := closedLog(t, vfs.NewMem())
	s := reopen(t, l.s.fs, small)
	var of []int // the groups of segment 3
	for i, loc := range l.locs {
		if loc.Number == 3 {
			of = append(of, i)
		}
	}
	m, err := s.Mend(ID{1, 3})
	require.NoError(t, err)
	for _, i := range of[1:] {
		var f Frame
		f.Encode(&l.groups[i], false)
		_, err := m.Append(2*uint64(i), &f)
		require.NoError(t, err)
	}
	require.NoError(t, m.Commit(footerOf(ID{1, 3})))
	for _, i := range of[:len(of)-1] {
		var d Decoded
		_, err := s.Read(l.locs[i], nil, &d)
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
		require.ErrorContains(t, err, fmt.Sprintf("not that of %d", 2*i))
	}
	require.NoError(t, s.Segments()[2].Damage, "the new file is whole")
	require.NoError(t, s.Close())
}

// A damaged segment is rewritten, for current users and for the next Open.
func TestMend(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			m := vfs.NewMem()
			l := closedLog(t, m)
			s := reopen(t, m, small)
			_, bad := l.readable(t, s)
			require.Empty(t, bad)
			if name != "missing" {
				seg, err := s.acquire(ID{1, 3}) // a reader in the meantime
				require.NoError(t, err)
				defer s.release(seg)
			}
			require.NoError(t, s.Close())
			change(t, m, l.file(3), damage)
			s = reopen(t, m, small)
			_, err := s.Check(ID{1, 3}, noPace)
			require.ErrorIs(t, err, sharedlog.ErrCorrupt)
			require.ErrorIs(t, s.Segments()[2].Damage, sharedlog.ErrCorrupt)
			require.NoError(t, l.mend(s, 3))
			for range 2 {
				require.NoError(t, s.Segments()[2].Damage)
				n, bad := l.readable(t, s)
				require.Equal(t, l.first(5), n)
				require.Empty(t, bad)
				repaired, err := s.Check(ID{1, 3}, noPace)
				require.NoError(t, err)
				require.Empty(t, repaired)
				require.NoError(t, s.Close())
				s = reopen(t, m, small)
			}
			require.NoError(t, s.Delete(ID{1, 3}))
			require.ErrorIs(t, l.mend(s, 3), sharedlog.ErrTrimmed)
			require.NoError(t, s.Close())
		})
	}
}

// The process is killed, or the power fails, or a call fails, at each call of a Mend: the segment
// is then as damaged as before or intact, all others are intact, and nothing of the Mend is left.
func TestMendIsCutShort(t *testing.T) {
	for name, damage := range damages {
		for n := 1; ; n++ {
			m := vfs.NewMem()
			l := closedLog(t, m)
			change(t, m, l.file(3), damage)
			s := reopen(t, m.KillClone(), small)
			before, _ := l.readable(t, s)
			require.NoError(t, s.Close())
			var left []*vfs.Mem
			calls, fails, armed := 0, false, false
			fsys := vfs.Inject(m, func(op vfs.Op) error {
				if !armed || op.Kind == vfs.OpRead || op.Kind == vfs.OpSize {
					return nil
				}
				if calls++; calls != n {
					return nil
				}
				left = append(left, m.KillClone())
				for seed := range uint64(4) {
					left = append(left, m.CrashClone(rand.New(rand.NewPCG(seed, 1))))
				}
				if fails {
					return errors.New("broken")
				}
				return nil
			})
			for _, fails = range []bool{false, true} {
				armed = false
				s := reopen(t, fsys, small)
				armed, calls = true, 0
				err := l.mend(s, 3)
				armed = false
				require.Equal(t, !fails || calls < n, err == nil)
				_, bad := l.readable(t, s)
				if err == nil {
					require.Empty(t, bad)
				} else {
					require.Subset(t, map[ID]bool{{1, 3}: true}, bad)
				}
				_ = s.Close()
				if !fails {
					change(t, m, l.file(3), damage)
				}
			}
			left = append(left, m)
			for _, after := range left {
				s := reopen(t, after, small)
				groups, bad := l.readable(t, s)
				require.Subset(t, map[ID]bool{{1, 3}: true}, bad, "%s, call %d", name, n)
				require.GreaterOrEqual(t, groups, before, "%s, call %d: what could be read still can", name, n)
				names, err := after.List("log")
				require.NoError(t, err)
				require.NotContains(t, names, ID{1, 3}.mendName())
				if len(bad) > 0 {
					require.NoError(t, l.mend(s, 3), "it can be tried again")
				}
				_, bad = l.readable(t, s)
				require.Empty(t, bad)
				require.NoError(t, s.Close())
			}
			if calls < n {
				require.Greater(t, n, 10)
				break
			}
		}
	}
}

// Check finds damage that no reader has met, repairs header and trailer in place, and notices that
// a file was restored.
func TestCheck(t *testing.T) {
	m := vfs.NewMem()
	l := closedLog(t, m)
	s := reopen(t, m, small)
	whole := m.KillClone()
	read := 0
	pace := func(n int) error { read += n; return nil }
	_, err := s.Check(ID{1, 2}, pace)
	require.NoError(t, err)
	require.EqualValues(t, s.Segments()[1].Size, read, "it is told of each byte")
	for off := range read {
		change(t, m, l.file(2), flip(off))
		repaired, err := s.Check(ID{1, 2}, noPace)
		if err == nil {
			require.NotEmpty(t, repaired, "byte %d", off)
			continue
		}
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
		require.ErrorContains(t, err, l.file(2)+", offset ")
		require.Error(t, s.Segments()[1].Damage)
		change(t, m, l.file(2), flip(off))
		_, err = s.Check(ID{1, 2}, noPace)
		require.NoError(t, err)
		require.NoError(t, s.Segments()[1].Damage)
	}
	require.NoError(t, s.Close())

	require.NoError(t, m.Remove(l.file(2)))
	s = reopen(t, m, small)
	_, err = s.Check(ID{1, 2}, noPace)
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	f, err := m.Create(l.file(2))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	change(t, m, l.file(2), func([]byte) (b []byte) {
		change(t, whole, l.file(2), func(was []byte) []byte { b = was; return was })
		return b
	})
	_, err = s.Check(ID{1, 2}, noPace)
	require.NoError(t, err)
	n, bad := l.readable(t, s)
	require.Equal(t, l.first(5), n)
	require.Empty(t, bad)
	stop := errors.New("stop")
	_, err = s.Check(ID{1, 2}, func(int) error { return stop })
	require.ErrorIs(t, err, stop)
	_, err = s.Check(ID{1, 5}, noPace)
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
	require.NoError(t, s.Close())
}

// Check compares positions with the list: intact frames may still be others than those that were
// closed.
func TestCheckOfPositions(t *testing.T) {
	for _, c := range []struct {
		name  string
		last  bool   // the last of the segment's frames, or the first
		later uint64 // added to its position
	}{
		{"the first one begins later", false, 1},
		{"the last one ends earlier", true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vfs.NewMem()
			o := small
			var l *log
			o.Extent = func(id ID, _ []byte) (Extent, error) {
				return Extent{From: uint64(2 * l.first(id.Number)), To: uint64(2 * l.first(id.Number+1)), First: 1, End: 2}, nil
			}
			l = newLog(t, m, o)
			for l.a.Active().Number < 4 {
				require.NoError(t, l.append(700))
			}
			l.closeFull()
			require.NoError(t, errors.Join(l.a.Close(), l.s.Close()))
			s := reopen(t, m, o)
			_, err := s.Check(ID{1, 2}, noPace)
			require.NoError(t, err)
			first, behind := l.first(2), l.first(3)
			i := first
			if c.last {
				i = behind - 1
			}
			loc := l.locs[i]
			change(t, m, l.file(2), func(b []byte) []byte {
				// One record instead of two, with the same length.
				g := l.groups[i]
				var f Frame
				g.Records = []sharedlog.Record{{Tags: g.Records[0].Tags, Data: make([]byte, 700)}}
				f.Encode(&g, i == 0)
				g.Records[0].Data = make([]byte, 700+int(loc.Size)-f.Size())
				f.Encode(&g, i == 0)
				require.EqualValues(t, loc.Size, f.Size())
				f.finish(uint64(2*i)+c.later, binary.LittleEndian.Uint64(b[24:]))
				at := int(loc.Offset)
				for _, p := range f.bufs {
					at += copy(b[at:], p)
				}
				return b
			})
			_, err = s.Check(ID{1, 2}, noPace)
			require.ErrorIs(t, err, sharedlog.ErrCorrupt)
			require.ErrorContains(t, err, fmt.Sprintf("%d to %d were closed", 2*first, 2*behind))
			require.NoError(t, s.Close())
		})
	}
}
