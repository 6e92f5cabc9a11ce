package logtag_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/logtag"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
)

// task is a runtime of which nothing but the log is used.
type task struct {
	operators.Runtime
	log sharedlog.Log
}

func (t task) Log() (context.Context, sharedlog.Log) { return context.Background(), t.log }
func (t task) Row(sharedlog.Tag, []byte) error       { return errors.New("not in these tests") }

type appender struct {
	*sharedlog.Writer
	t *testing.T
}

func (w appender) add(tag, data string) sharedlog.LSN {
	w.t.Helper()
	lsn, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{sharedlog.Tag(tag)}, Data: []byte(data)}).Wait(w.t.Context())
	require.NoError(w.t, err)
	return lsn
}

func newLog(t *testing.T) (*mem.Log, appender) {
	log := mem.New(mem.Options{})
	return log, appender{sharedlog.NewWriter(log, "w", sharedlog.Condition{}), t}
}

// text parses "TIME TEXT".
func text(record []byte) (string, int64, error) {
	number, _, ok := strings.Cut(string(record), " ")
	if !ok {
		return "", 0, errors.New("no blank in it")
	}
	at, err := strconv.ParseInt(number, 10, 64)
	return string(record), at, err
}

func source(t *testing.T, tag string, opts ...logtag.Option) *logtag.Source[string] {
	t.Helper()
	s, err := logtag.Records(tag, text, opts...)
	require.NoError(t, err)
	return s
}

func open(t *testing.T, log sharedlog.Log, s *logtag.Source[string], p int) operators.Partition[string] {
	t.Helper()
	part, err := s.Open(p)
	require.NoError(t, err)
	require.NoError(t, part.(operators.Attached).Attach(task{log: log}))
	t.Cleanup(func() { require.NoError(t, part.Close()) })
	return part
}

func read(t *testing.T, p operators.Partition[string], most int, now int64) ([]string, operators.Status) {
	t.Helper()
	var b operators.Batch[string]
	st, err := p.Read(&b, most, now)
	require.NoError(t, err)
	require.LessOrEqual(t, b.Len(), most)
	return b.Items, st
}

// all reads until nothing is there, or the end.
func all(t *testing.T, p operators.Partition[string]) (got []string, st operators.Status) {
	t.Helper()
	for {
		var items []string
		items, st = read(t, p, 100, 1)
		got = append(got, items...)
		if st.State != operators.More {
			return got, st
		}
	}
}

// A tag is read at random speed while records are appended, among those of other tags, and again
// from random positions: each record once, in order.
func TestReadWhileItGrows(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		log, w := newLog(t)
		src := source(t, "x", logtag.IdleAfter(0))
		p := open(t, log, src, 0)
		var want, got []string
		for now := int64(1); len(want) < 300 || len(got) < len(want); now++ {
			for range rng.IntN(20) {
				if rng.IntN(3) == 0 {
					w.add("other", "y")
				} else if len(want) < 300 {
					want = append(want, fmt.Sprint(len(want), " ", strings.Repeat("x", rng.IntN(50))))
					w.add("x", want[len(want)-1])
				}
			}
			items, st := read(t, p, 1+rng.IntN(30), now)
			got = append(got, items...)
			require.NotEqual(t, operators.Ended, st.State)
			if len(got) > 0 {
				require.EqualValues(t, len(got)-1, p.Watermark())
			}
			if rng.IntN(10) == 0 {
				position := p.Position(nil)
				p = open(t, log, src, 0)
				require.NoError(t, p.Seek(position))
				require.Equal(t, position, p.Position(nil))
			}
		}
		require.Equal(t, want, got, "seed %d", seed)
	}
}

// Between the items of a batch a position is the one before the batch, with the number of items
// that are done: it must stand for the same items when the log has been trimmed since.
func TestPositionOfTheOldest(t *testing.T) {
	log, w := newLog(t)
	w.add("x", "0 a")
	w.add("x", "1 b")
	require.NoError(t, log.Trim(t.Context(), "x", 2))
	p := open(t, log, source(t, "x"), 0)
	before := p.Position(nil)
	items, st := read(t, p, 10, 1)
	if len(items) > 0 {
		t.Fatalf("%q were read behind position %x, which stands for whatever is the oldest", items, before)
	}
	require.Equal(t, operators.More, st.State)
	before = p.Position(nil)
	items, _ = read(t, p, 10, 1)
	require.Equal(t, []string{"1 b"}, items)
	w.add("x", "2 c")
	require.NoError(t, log.Trim(t.Context(), "x", 3))
	again := open(t, log, source(t, "x"), 0)
	require.NoError(t, again.Seek(before))
	var b operators.Batch[string]
	_, err := again.Read(&b, 10, 1)
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
	require.ErrorContains(t, err, `tag "x" was trimmed before its records from 2 on were read`)

	again = open(t, log, source(t, "x", logtag.SkipMissing()), 0)
	require.NoError(t, again.Seek(before))
	got, _ := all(t, again)
	require.Equal(t, []string{"2 c"}, got)
}

// UntilTail ends at the tail of the first reading, also after a restart.
func TestUntilTail(t *testing.T) {
	log, w := newLog(t)
	w.add("x", "0 a")
	w.add("x", "1 b")
	src := source(t, "x", logtag.UntilTail())
	p := open(t, log, src, 0)
	read(t, p, 1, 1)
	got, _ := read(t, p, 1, 1)
	require.Equal(t, []string{"0 a"}, got)
	position := p.Position(nil)
	w.add("x", "2 c")
	again := open(t, log, src, 0)
	require.NoError(t, again.Seek(position))
	for _, p := range []operators.Partition[string]{p, again} {
		got, st := all(t, p)
		require.Equal(t, []string{"1 b"}, got)
		require.Equal(t, operators.Ended, st.State)
		require.Equal(t, operators.MaxTime, p.Watermark())
	}
	position = again.Position(nil)
	again = open(t, log, src, 0)
	require.NoError(t, again.Seek(position))
	require.Equal(t, operators.MaxTime, again.Watermark())
	got, st := all(t, again)
	require.Empty(t, got)
	require.Equal(t, operators.Ended, st.State)

	empty := open(t, log, source(t, "nothing", logtag.UntilTail()), 0)
	got, st = all(t, empty)
	require.Empty(t, got)
	require.Equal(t, operators.Ended, st.State)
}

// From, And, Delay and IdleAfter.
func TestOptions(t *testing.T) {
	log, w := newLog(t)
	w.add("x", "0 a")
	from := w.add("x", "10 b")
	w.add("y", "11 c")
	src := source(t, "x", logtag.From(from), logtag.And("y"), logtag.Delay(4*time.Millisecond), logtag.IdleAfter(100*time.Millisecond))
	require.Equal(t, 2, src.Partitions())
	p := open(t, log, src, 0)
	require.Equal(t, operators.MinTime, p.Watermark())
	got, _ := all(t, p)
	require.Equal(t, []string{"10 b"}, got)
	require.EqualValues(t, 6, p.Watermark())
	got, _ = all(t, open(t, log, src, 1))
	require.Equal(t, []string{"11 c"}, got)

	p = open(t, log, src, 0)
	read(t, p, 10, 1)
	var states []operators.ReadState
	for _, now := range []int64{1000, 1099, 1100, 5000} {
		_, st := read(t, p, 10, now)
		states = append(states, st.State)
		if st.State == operators.Waiting {
			require.Greater(t, st.Due, now)
		}
	}
	require.Equal(t, []operators.ReadState{operators.Waiting, operators.Waiting, operators.Idle, operators.Idle}, states)
	w.add("x", "20 d")
	got, _ = read(t, p, 10, 5001)
	require.Equal(t, []string{"20 d"}, got)
	_, st := read(t, p, 10, 5002)
	require.Equal(t, operators.Waiting, st.State)
}

// A record that cannot be parsed is an error with its place, or is skipped and counted.
func TestBadRecords(t *testing.T) {
	log, w := newLog(t)
	w.add("x", "0 a")
	at := w.add("x", "nothing")
	w.add("x", "1 b")
	p := open(t, log, source(t, "x"), 0)
	read(t, p, 1, 1)
	read(t, p, 1, 1)
	var b operators.Batch[string]
	_, err := p.Read(&b, 10, 1)
	var bad *logtag.RecordError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, fmt.Sprintf(`tag "x", record %d: no blank in it`, at), err.Error())
	src := source(t, "x", logtag.SkipBad())
	got, _ := all(t, open(t, log, src, 0))
	require.Equal(t, []string{"0 a", "1 b"}, got)
	require.EqualValues(t, 1, src.Bad())

	json, err := logtag.JSON("j", func(v *struct{ At int64 }) int64 { return v.At })
	require.NoError(t, err)
	w.add("j", `{"at": 7}`)
	part, err := json.Open(0)
	require.NoError(t, err)
	require.NoError(t, part.(operators.Attached).Attach(task{log: log}))
	var values operators.Batch[struct{ At int64 }]
	for values.Len() == 0 {
		_, err = part.Read(&values, 1, 1)
		require.NoError(t, err)
	}
	require.EqualValues(t, 7, part.Watermark())
	require.NoError(t, part.Close())
}

// Tags that belong to jobs, and positions of other sources, are refused; so is a runtime without a
// log.
func TestRefused(t *testing.T) {
	for tag, want := range map[string]string{
		"X/job/stream/0":         `tag "X/job/stream/0" belongs to the job "job"`,
		"":                       "the tag is empty",
		strings.Repeat("x", 513): "has 513 bytes",
	} {
		_, err := logtag.Records(tag, text)
		require.ErrorContains(t, err, want)
		_, err = logtag.Sink(tag, func(dst []byte, _ *string) []byte { return dst })
		require.ErrorContains(t, err, want)
	}
	_, err := logtag.Records("x", text, logtag.And("y", "x"))
	require.ErrorContains(t, err, `tag "x" is given twice`)

	part, err := source(t, "x").Open(0)
	require.NoError(t, err)
	require.ErrorContains(t, part.(operators.Attached).Attach(nil), "needs the log that the job runs on")
	for _, position := range []string{"", "\x02\x01\x01\x01", "\x01", "\x01\x01\x01", "\x01\x01\x01\x01\x01"} {
		require.ErrorContains(t, part.Seek([]byte(position)), "is none of a tag of the log")
	}
}
