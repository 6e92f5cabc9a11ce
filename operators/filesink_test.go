package operators_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
)

// numbers is a file sink of one number a line, with rows written to it by hand.
type numbers struct {
	operators.Sink[int64]
	path string
}

func newNumbers(t *testing.T) numbers {
	path := filepath.Join(t.TempDir(), "out")
	return numbers{operators.FileSink(path, func(dst []byte, v *int64) []byte {
		return append(strconv.AppendInt(dst, *v, 10), '\n')
	}, false), path}
}

// open returns an instance that resumes at a position, nil: from nothing.
func (s numbers) open(t *testing.T, at []byte) operators.SinkWriter[int64] {
	w, err := s.Open(0, 1)
	require.NoError(t, err)
	t.Cleanup(func() { w.Close() })
	if at != nil {
		require.NoError(t, w.Restore(at))
	}
	return w
}

// put passes the rows of some numbers to w, which may buffer them.
func (s numbers) put(t *testing.T, w operators.SinkWriter[int64], from, to int64) {
	var b operators.Batch[int64]
	for i := from; i < to; i++ {
		b.Append(i, 0)
	}
	require.NoError(t, w.Write(&b))
}

// write is put followed by a commit.
func (s numbers) write(t *testing.T, w operators.SinkWriter[int64], from, to int64) []byte {
	s.put(t, w, from, to)
	at, err := w.Position(nil)
	require.NoError(t, err)
	return at
}

// holds requires that the file consists of the rows of some numbers.
func (s numbers) holds(t *testing.T, from, to int64) {
	t.Helper()
	b, err := os.ReadFile(s.path)
	require.NoError(t, err)
	var want strings.Builder
	for i := from; i < to; i++ {
		want.WriteString(strconv.FormatInt(i, 10) + "\n")
	}
	require.True(t, string(b) == want.String(), "%d bytes, %d of them NUL, %d expected", len(b), strings.Count(string(b), "\x00"), want.Len())
}

var errReplaced = errors.New("replaced")

func fence(t *testing.T, w operators.SinkWriter[int64], check func() (bool, error)) error {
	return w.(operators.Fenced).Fence(operators.Fence{Check: check, Pause: func(n int) error {
		if n > 3 {
			return errors.New("no more time")
		}
		return nil
	}})
}

func alone() (bool, error)    { return true, nil }
func replaced() (bool, error) { return false, errReplaced }

// An instance that was stopped resumes when its successor has written and committed: before or
// after it has removed what lies behind its position, with buffered rows or without. The file is
// the successor's.
func TestFileSinkZombie(t *testing.T) {
	for _, nothing := range []bool{false, true} { // the zombie starts from nothing
		for _, before := range []bool{true, false} {
			t.Run(map[bool]string{true: "from nothing", false: "restored"}[nothing]+"/"+map[bool]string{true: "before", false: "after"}[before], func(t *testing.T) {
				s := newNumbers(t)
				require.NoError(t, os.WriteFile(s.path, []byte("what an earlier job has left\n"), 0o666))
				var at []byte
				first := int64(100)
				if !nothing {
					one := s.open(t, nil)
					require.NoError(t, fence(t, one, alone))
					at = s.write(t, one, 100, 200)
					s.write(t, one, 200, 205) // not committed
					first = 200
				}
				zombie := s.open(t, at)
				if !before {
					require.NoError(t, fence(t, zombie, alone))
					s.put(t, zombie, first, first+50)
				}
				next := s.open(t, at)
				require.NoError(t, fence(t, next, alone))
				s.holds(t, 100, first)
				s.write(t, next, first, 300)
				if before {
					require.ErrorIs(t, fence(t, zombie, replaced), errReplaced)
				} else {
					s.write(t, zombie, first+50, first+60)
				}
				s.holds(t, 100, 300)
				s.write(t, next, 300, 400)
				s.holds(t, 100, 400)
			})
		}
	}
}

// An instance that was replaced has rows that lie behind the end to which its successor has
// truncated the file. It must write none of them: NUL bytes would fill the gap.
func TestFileSinkZombieBehindTheEnd(t *testing.T) {
	s := newNumbers(t)
	zombie := s.open(t, nil)
	require.NoError(t, fence(t, zombie, alone))
	at := s.write(t, zombie, 100, 200)
	s.write(t, zombie, 200, 300) // not committed
	s.put(t, zombie, 300, 400)
	next := s.open(t, at)
	require.NoError(t, fence(t, next, alone))
	_, err := zombie.Position(nil)
	require.ErrorContains(t, err, "has 400 bytes, but 800 were written")
	s.holds(t, 100, 200)
	s.write(t, next, 200, 210)
	s.holds(t, 100, 210)
}

// An instance that has learnt that it is the only one, and is stopped before it removes anything,
// blocks its successor: the file is locked meanwhile.
func TestFileSinkZombieBetweenCheckAndCut(t *testing.T) {
	s := newNumbers(t)
	require.NoError(t, os.WriteFile(s.path, []byte("old"), 0o666))
	zombie := s.open(t, nil)
	next := s.open(t, nil)
	require.NoError(t, fence(t, zombie, func() (bool, error) {
		require.ErrorContains(t, fence(t, next, alone), "no more time")
		return true, nil
	}))
	require.NoError(t, fence(t, next, alone))
	s.write(t, next, 100, 200)
	s.holds(t, 100, 200)
}

// The log does not answer at once.
func TestFileSinkLogDoesNotAnswer(t *testing.T) {
	s := newNumbers(t)
	require.NoError(t, os.WriteFile(s.path, []byte("old"), 0o666))
	w := s.open(t, nil)
	asked := 0
	require.NoError(t, fence(t, w, func() (bool, error) {
		asked++
		return asked > 2, nil
	}))
	s.write(t, w, 100, 200)
	s.holds(t, 100, 200)
	require.ErrorContains(t, fence(t, s.open(t, []byte{4}), func() (bool, error) { return false, nil }), "the log does not answer")
	s.holds(t, 100, 200)
}

// A power failure may leave anything behind the committed end: other rows, or NUL bytes.
func TestFileSinkPowerCut(t *testing.T) {
	for _, tail := range []string{"", "7", "9999\n8888\n", "20", strings.Repeat("\x00", 4096), "200\n20\x00\x00"} {
		s := newNumbers(t)
		w := s.open(t, nil)
		require.NoError(t, fence(t, w, alone))
		at := s.write(t, w, 100, 200)
		f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND, 0)
		require.NoError(t, err)
		_, err = f.WriteString(tail)
		require.NoError(t, errors.Join(err, f.Close()))
		next := s.open(t, at)
		require.NoError(t, fence(t, next, alone))
		s.holds(t, 100, 200)
		s.write(t, next, 200, 201)
		s.holds(t, 100, 201)
		require.NoError(t, os.Truncate(s.path, 399))
		again, err := s.Open(0, 1)
		require.NoError(t, err)
		require.ErrorContains(t, again.Restore(at), "has 399 bytes, but 400 were written")
		require.NoError(t, again.Close())
	}
}
