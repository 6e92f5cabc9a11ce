package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/file"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

func add(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, errors.Join(err, f.Close()))
}

// numbered parses "TIME TEXT".
func numbered(line []byte) (string, int64, error) {
	number, text, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return "", 0, errors.New("no blank in it")
	}
	at, err := strconv.ParseInt(string(number), 10, 64)
	return fmt.Sprint(at, " ", string(text)), at, err
}

func open[T any](t *testing.T, s *file.Source[T], p int) operators.Partition[T] {
	t.Helper()
	part, err := s.Open(p)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, part.Close()) })
	return part
}

// read reads once; the items are copied.
func read(t *testing.T, p operators.Partition[string], most int, now int64) ([]string, operators.Status) {
	t.Helper()
	var b operators.Batch[string]
	st, err := p.Read(&b, most, now)
	require.NoError(t, err)
	require.LessOrEqual(t, b.Len(), most)
	var got []string
	for _, s := range b.Items {
		got = append(got, strings.Clone(s))
	}
	return got, st
}

// A file is read at random speed while it grows at random places, and again from random
// positions: each line once, in order, whatever the place of the cuts.
func TestReadWhileItGrows(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		path := filepath.Join(t.TempDir(), "x")
		var text strings.Builder
		var want []string
		for i := range 400 {
			body := strings.Repeat("x", rng.IntN(40))
			if rng.IntN(100) == 0 {
				body = strings.Repeat("long", 100_000)
			}
			end := []string{"\n", "\r\n"}[rng.IntN(2)]
			if rng.IntN(10) == 0 {
				end += "  " + end // a blank line
			}
			fmt.Fprintf(&text, "%d %s%s", i, body, end)
			want = append(want, fmt.Sprint(i, " ", body))
		}
		left := text.String()
		write(t, path, "")
		src, err := file.Lines(path, numbered, file.Follow(), file.IdleAfter(0))
		require.NoError(t, err)
		p := open(t, src, 0)
		var got []string
		now := int64(1)
		for left != "" || len(got) < len(want) {
			now++
			if n := min(len(left), rng.IntN(20_000)); n > 0 && rng.IntN(3) == 0 {
				add(t, path, left[:n])
				left = left[n:]
			}
			items, st := read(t, p, 1+rng.IntN(50), now)
			got = append(got, items...)
			require.NotEqual(t, operators.Ended, st.State)
			if len(got) > 0 {
				at, _, _ := strings.Cut(got[len(got)-1], " ")
				require.Equal(t, at, fmt.Sprint(p.Watermark()))
			}
			if rng.IntN(20) == 0 {
				position := p.Position(nil)
				p = open(t, src, 0)
				require.NoError(t, p.Seek(position))
				require.Equal(t, position, p.Position(nil))
			}
		}
		require.Equal(t, want, got, "seed %d", seed)
	}
}

// Without Follow a file ends at its end, with or without a line feed, and has ended for good.
func TestEnd(t *testing.T) {
	for _, last := range []string{"", "\n"} {
		path := filepath.Join(t.TempDir(), "x")
		write(t, path, "1 a\n2 b"+last)
		src, err := file.Lines(path, numbered)
		require.NoError(t, err)
		p := open(t, src, 0)
		got, _ := read(t, p, 10, 1)
		for st := (operators.Status{}); st.State != operators.Ended; {
			var more []string
			more, st = read(t, p, 10, 1)
			got = append(got, more...)
		}
		require.Equal(t, []string{"1 a", "2 b"}, got)
		require.Equal(t, operators.MaxTime, p.Watermark())
		add(t, path, "\n3 c\n")
		again := open(t, src, 0)
		require.NoError(t, again.Seek(p.Position(nil)))
		require.Equal(t, operators.MaxTime, again.Watermark())
		got, st := read(t, again, 10, 1)
		require.Empty(t, got)
		require.Equal(t, operators.Ended, st.State)
	}
}

// A file that is followed waits for a second, and is Idle then; what comes makes it wait again.
func TestIdle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	write(t, path, "1 a\n2 not whole")
	src, err := file.Lines(path, numbered, file.Follow(), file.Delay(5*time.Millisecond))
	require.NoError(t, err)
	p := open(t, src, 0)
	require.Equal(t, operators.MinTime, p.Watermark())
	states := func(at ...int64) (all []operators.ReadState) {
		for _, now := range at {
			_, st := read(t, p, 10, now)
			all = append(all, st.State)
			if st.State == operators.Waiting {
				require.Greater(t, st.Due, now)
			}
		}
		return all
	}
	require.Equal(t, []operators.ReadState{operators.More, operators.Waiting, operators.Waiting, operators.Idle, operators.Idle}, states(100, 101, 1100, 1101, 5000))
	require.EqualValues(t, -4, p.Watermark())
	add(t, path, " yet\n")
	require.Equal(t, []operators.ReadState{operators.More, operators.Waiting}, states(5001, 5002))
	require.EqualValues(t, -3, p.Watermark())
}

// A line that cannot be parsed is an error with its place, or is skipped and counted.
func TestBadLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	write(t, path, "1 a\n\nnothing\n2 b\nx y\n3 c\n")
	src, err := file.Lines(path, numbered)
	require.NoError(t, err)
	var b operators.Batch[string]
	_, err = open(t, src, 0).Read(&b, 10, 1)
	var bad *file.LineError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, path+", line 3: no blank in it", err.Error())

	src, err = file.Lines(path, numbered, file.SkipBad())
	require.NoError(t, err)
	p := open(t, src, 0)
	got, _ := read(t, p, 10, 1)
	require.Equal(t, []string{"1 a", "2 b", "3 c"}, got)
	require.EqualValues(t, 2, src.Bad())

	write(t, path, "1 "+strings.Repeat("x", file.MaxLine)+"\n")
	p = open(t, src, 0)
	_, err = p.Read(&b, 10, 1)
	require.ErrorContains(t, err, "line 1: it has more than")
}

// A file that is not the one that was read is an error, when a job is restarted and while it
// follows.
func TestOtherFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	write(t, path, "1 a\n2 b\n")
	src, err := file.Lines(path, numbered, file.Follow())
	require.NoError(t, err)
	p := open(t, src, 0)
	read(t, p, 10, 1)
	position := p.Position(nil)
	fails := func(want string) {
		t.Helper()
		again := open(t, src, 0)
		require.ErrorContains(t, again.Seek(position), want)
	}
	require.NoError(t, open(t, src, 0).Seek(position))
	write(t, path, "1 a\n")
	fails("has 4 bytes, and 8 were read of it")
	var b operators.Batch[string]
	_, err = p.Read(&b, 10, 2)
	require.ErrorContains(t, err, "has 4 bytes, and 8 were read of it")
	write(t, path, "1 a\n2 c\n3 d\n")
	fails("does not begin with the lines that were read of it")
	other := filepath.Join(filepath.Dir(path), "y")
	write(t, other, "1 a\n2 b\n")
	p = open(t, src, 0)
	read(t, p, 10, 1)
	require.NoError(t, os.Rename(other, path))
	_, err = p.Read(&b, 10, 2)
	require.ErrorContains(t, err, "was replaced by another file")
	require.ErrorContains(t, p.Seek([]byte{0, 1}), "is none of a file of lines")
}

// Options a pattern may have: several files, none, a path that looks like a pattern.
func TestPatterns(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.txt", "a.txt", "c.csv", "[x"} {
		write(t, filepath.Join(dir, name), "1 "+name+"\n")
	}
	src, err := file.Lines(filepath.Join(dir, "*.txt"), numbered)
	require.NoError(t, err)
	require.Equal(t, 2, src.Partitions())
	for i, want := range []string{"1 a.txt", "1 b.txt"} {
		got, _ := read(t, open(t, src, i), 10, 1)
		require.Equal(t, []string{want}, got)
	}
	_, err = file.Lines(filepath.Join(dir, "*.nothing"), numbered)
	require.ErrorIs(t, err, os.ErrNotExist)
	src, err = file.Text(filepath.Join(dir, "[x"))
	require.NoError(t, err)
	require.Equal(t, 1, src.Partitions())
	got, _ := read(t, open(t, src, 0), 10, 1)
	require.Equal(t, []string{"1 [x"}, got)
}

// Records of CSV may hold line feeds, commas and quotes; the first may be a header.
func TestCSV(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.csv")
	write(t, path, "at,text\n1,plain\n2,\"a \"\"quoted\"\"\none, with a comma\"\r\n3,\n")
	src, err := file.CSV(path, func(fields []string) (string, int64, error) {
		at, err := strconv.ParseInt(fields[0], 10, 64)
		return fields[1], at, err
	}, file.Header())
	require.NoError(t, err)
	p := open(t, src, 0)
	got, _ := read(t, p, 2, 1)
	require.Equal(t, []string{"plain", "a \"quoted\"\none, with a comma"}, got)
	again := open(t, src, 0)
	require.NoError(t, again.Seek(p.Position(nil)))
	got, _ = read(t, again, 2, 1)
	require.Equal(t, []string{""}, got)
	write(t, path, "at,text\n1,\"never closed\n")
	var b operators.Batch[string]
	_, err = open(t, src, 0).Read(&b, 2, 1)
	require.ErrorContains(t, err, "line 2: extraneous or missing \" in quoted-field")
}

// JSON Lines decode as encoding/json does.
func TestJSON(t *testing.T) {
	type order struct {
		At   int64
		Item string
	}
	path := filepath.Join(t.TempDir(), "x.jsonl")
	write(t, path, `{"at": 7, "item": "ink"}`+"\n"+`{"at": "soon"}`+"\n")
	src, err := file.JSON(path, func(o *order) int64 { return o.At })
	require.NoError(t, err)
	var b operators.Batch[order]
	p := open(t, src, 0)
	_, err = p.Read(&b, 1, 1)
	require.NoError(t, err)
	require.Equal(t, []order{{7, "ink"}}, b.Items)
	require.EqualValues(t, 7, p.Watermark())
	_, err = p.Read(&b, 1, 1)
	require.ErrorContains(t, err, "x.jsonl, line 2: json: cannot unmarshal string")
}
