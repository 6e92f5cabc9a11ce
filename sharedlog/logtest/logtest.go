package logtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// Factory makes logs.
type Factory struct {
	// Open returns an empty log. It is closed when the test ends.
	Open func(t testing.TB) sharedlog.Log
	// Reopen closes the log and returns it as it is after a restart of its process.
	Reopen func(t testing.TB, log sharedlog.Log) sharedlog.Log
	// Seals says that a shard may be sealed at any time: on a busy machine a live node can look
	// dead. The shard of a group that is sent again may then be gone, and the group's outcome is
	// unknown (promise 6).
	Seals bool
}

// Run checks the promises of sharedlog's package comment.
func Run(t *testing.T, f Factory) {
	for _, c := range []struct {
		name string
		run  func(h *harness)
	}{
		{"order and groups (1, 3)", order},
		{"every reader sees the same (1)", sameForAll},
		{"invalid requests", invalid},
		{"conditions (4)", conditions},
		{"conditions in flight (4)", conditionsInFlight},
		{"void after void (8)", voidAfterVoid},
		{"numbers (6, 8)", numbers},
		{"tail (5)", tail},
		{"metadata", metadata},
		{"tags are seen once", tagsOnce},
		{"from and until", fromUntil},
		{"until above the tail", untilAbove},
		{"ready and try", readyTry},
		{"last", last},
		{"trim (7)", trim},
		{"trim under a reader that lags (7)", trimLagging},
		{"slow readers stall no other client", slowReaders},
		{"large groups", largeGroups},
		{"close", closing},
		{"reopening", reopening},
		{"many at once", many},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &harness{T: t, f: f, log: f.Open(t)}
			t.Cleanup(func() { require.NoError(t, h.log.Close()) }) // before the test's directory is removed
			c.run(h)
		})
	}
}

// harness does the error handling of the stories.
type harness struct {
	*testing.T
	f    Factory
	log  sharedlog.Log
	next int
}

func rec(data string, tags ...sharedlog.Tag) sharedlog.Record {
	return sharedlog.Record{Tags: tags, Data: []byte(data)}
}

func (h *harness) writer(cond sharedlog.Condition) *sharedlog.Writer {
	h.next++
	return sharedlog.NewWriter(h.log, fmt.Sprintf("%s-%d", h.Name(), h.next), cond)
}

func (h *harness) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // ends a test that hangs; a busy machine may be slow
	h.Cleanup(cancel)
	return ctx
}

func (h *harness) append(w *sharedlog.Writer, records ...sharedlog.Record) sharedlog.LSN {
	h.Helper()
	lsn, err := w.Append(records...).Wait(h.ctx())
	require.NoError(h, err)
	return lsn
}

func (h *harness) tail() sharedlog.LSN {
	h.Helper()
	lsn, err := h.log.Tail(h.ctx())
	require.NoError(h, err)
	return lsn
}

func (h *harness) set(key, old, new string) sharedlog.LSN {
	h.Helper()
	c, err := h.log.CompareAndSet(h.ctx(), key, []byte(old), []byte(new))
	require.NoError(h, err)
	return c.Place
}

// read returns what a reader of tags sees in [from, until), as "LSN:data".
func (h *harness) read(from, until sharedlog.LSN, tags ...sharedlog.Tag) []string {
	h.Helper()
	rows, err := Read(h.ctx(), h.log, from, until, tags...)
	require.NoError(h, err)
	return rows
}

// Read returns what a reader of tags sees in [from, until), as "LSN:data".
func Read(ctx context.Context, log sharedlog.Log, from, until sharedlog.LSN, tags ...sharedlog.Tag) (rows []string, err error) {
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: tags, From: from, Until: until})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		b, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		for _, e := range b.Entries {
			rows = append(rows, fmt.Sprintf("%d:%s", e.LSN, e.Data))
		}
	}
}

func (h *harness) kind(want sharedlog.Kind, err error) {
	h.Helper()
	require.Equal(h, want, sharedlog.KindOf(err), "%v", err)
}

func order(h *harness) {
	require.Equal(h, sharedlog.First, h.tail())
	a, b := h.writer(sharedlog.Condition{}), h.writer(sharedlog.Condition{})
	require.Equal(h, sharedlog.LSN(1), h.append(a, rec("a", "x"), rec("b", "y"), rec("c", "x", "y")))
	require.Equal(h, sharedlog.LSN(4), h.append(b, rec("d", "y")))
	require.Equal(h, sharedlog.LSN(5), h.append(a, rec("", "x")))
	require.Equal(h, sharedlog.LSN(6), h.tail())
	require.Equal(h, []string{"1:a", "3:c", "5:"}, h.read(1, 6, "x"))
	require.Equal(h, []string{"2:b", "3:c", "4:d"}, h.read(1, 6, "y"))
	require.Empty(h, h.read(1, 6, "z"))
}

func sameForAll(h *harness) {
	var want []string
	var early []sharedlog.Reader
	for range 3 {
		r, err := h.log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, Until: 301})
		require.NoError(h, err)
		defer r.Close()
		early = append(early, r)
	}
	ws := []*sharedlog.Writer{h.writer(sharedlog.Condition{}), h.writer(sharedlog.Condition{})}
	for i := range 150 {
		lsn := h.append(ws[i%2], rec(fmt.Sprint(i), "x"), rec("other", "y"))
		want = append(want, fmt.Sprintf("%d:%d", lsn, i))
	}
	for _, r := range early {
		var got []string
		for {
			b, err := r.Next(h.ctx())
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(h, err)
			for _, e := range b.Entries {
				require.Less(h, e.LSN, b.Frontier)
				require.Equal(h, []sharedlog.Tag{"x"}, e.Tags)
				got = append(got, fmt.Sprintf("%d:%s", e.LSN, e.Data))
			}
		}
		require.Equal(h, want, got)
	}
	require.Equal(h, want, h.read(1, h.tail(), "x"))
}

func invalid(h *harness) {
	many := make([]sharedlog.Tag, sharedlog.MaxGroupTags+1)
	for i := range many {
		many[i] = sharedlog.Tag(fmt.Sprint("t", i))
	}
	for name, g := range map[string]sharedlog.Group{
		"no records":     {Writer: "w", Number: 1},
		"no tag":         {Writer: "w", Number: 1, Records: []sharedlog.Record{{Data: []byte("x")}}},
		"empty tag":      {Writer: "w", Number: 1, Records: []sharedlog.Record{rec("x", "")}},
		"repeated tag":   {Writer: "w", Number: 1, Records: []sharedlog.Record{rec("x", "a", "b", "a")}},
		"too many tags":  {Writer: "w", Number: 1, Records: []sharedlog.Record{rec("x", many...)}},
		"too many bytes": {Writer: "w", Number: 1, Records: []sharedlog.Record{rec(strings.Repeat("x", sharedlog.MaxGroupBytes+1), "a")}},
		"no writer":      {Number: 1, Records: []sharedlog.Record{rec("x", "a")}},
		"number 0":       {Writer: "w", Records: []sharedlog.Record{rec("x", "a")}},
		"long tag":       {Writer: "w", Number: 1, Records: []sharedlog.Record{rec("x", sharedlog.Tag(strings.Repeat("t", sharedlog.MaxTagBytes+1)))}},
	} {
		_, err := h.log.Append(g).Wait(h.ctx())
		require.Equal(h, sharedlog.KindInvalid, sharedlog.KindOf(err), name)
	}
	_, err := h.log.NewReader(sharedlog.ReaderOptions{})
	h.kind(sharedlog.KindInvalid, err)
	_, err = h.log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"a", "a"}})
	h.kind(sharedlog.KindInvalid, err)
	_, err = h.log.CompareAndSet(h.ctx(), "", nil, []byte("x"))
	h.kind(sharedlog.KindInvalid, err)
	h.kind(sharedlog.KindInvalid, h.log.Trim(h.ctx(), "a", 2))
	require.Equal(h, sharedlog.First, h.tail(), "nothing of it took a place")
	require.Equal(h, sharedlog.First, h.append(h.writer(sharedlog.Condition{}), rec("x", many[:sharedlog.MaxGroupTags]...)))
}

func conditions(h *harness) {
	one := sharedlog.Condition{Key: "k", Value: []byte("1")}
	absent := sharedlog.Condition{Key: "k"}
	w0 := h.writer(absent)
	require.Equal(h, sharedlog.LSN(1), h.append(w0, rec("absent", "x")))
	require.Equal(h, sharedlog.LSN(2), h.set("k", "", "1"))
	_, err := w0.Append(rec("stale", "x")).Wait(h.ctx())
	h.kind(sharedlog.KindConditionFailed, err)
	w1 := h.writer(one)
	at := h.append(w1, rec("one", "x"))
	require.Equal(h, sharedlog.LSN(3), at, "a group without effect keeps its LSN")
	require.Equal(h, sharedlog.LSN(4), h.set("k", "1", "2"))
	_, err = w1.Append(rec("zombie a", "x"), rec("zombie b", "y")).Wait(h.ctx())
	h.kind(sharedlog.KindConditionFailed, err)
	require.Equal(h, sharedlog.LSN(6), h.tail())
	require.Equal(h, []string{"1:absent", "3:one"}, h.read(1, 6, "x", "y"))
	_, ok, err := h.log.Last(h.ctx(), "y", 6)
	require.NoError(h, err)
	require.False(h, ok)
}

// The test starts appends and one metadata change without waiting, with the change at every place
// among the appends. The groups that take effect must be a prefix and lie below the change's place,
// and everything started after the change was known must have no effect.
func conditionsInFlight(h *harness) {
	for at := range 6 {
		key, tag := fmt.Sprint("key", at), sharedlog.Tag(fmt.Sprint("tag", at))
		h.set(key, "", "mine")
		w := h.writer(sharedlog.Condition{Key: key, Value: []byte("mine")})
		var pending []*sharedlog.Pending
		var place sharedlog.LSN
		for i := range 6 {
			if i == at {
				place = h.set(key, "mine", "theirs")
			}
			pending = append(pending, w.Append(rec(fmt.Sprint(i), tag)))
		}
		var want []string
		void := false
		for i, p := range pending {
			lsn, err := p.Wait(h.ctx())
			if err != nil {
				h.kind(sharedlog.KindConditionFailed, err)
				void = true
				continue
			}
			require.False(h, void, "%d has effect behind one that has none", i)
			require.Less(h, i, at, "started after the change was known")
			require.Less(h, lsn, place)
			want = append(want, fmt.Sprintf("%d:%d", lsn, i))
		}
		require.Equal(h, want, h.read(1, h.tail(), tag))
	}
}

func voidAfterVoid(h *harness) {
	name := h.Name()
	send := func(n uint64, cond sharedlog.Condition, data string) error {
		_, err := h.log.Append(sharedlog.Group{Writer: name, Number: n, If: cond, Records: []sharedlog.Record{rec(data, "x")}}).Wait(h.ctx())
		return err
	}
	require.NoError(h, send(1, sharedlog.Condition{}, "first"))
	h.kind(sharedlog.KindConditionFailed, send(2, sharedlog.Condition{Key: "k", Value: []byte("never")}, "void"))
	h.kind(sharedlog.KindConditionFailed, send(3, sharedlog.Condition{}, "behind a void one"))
	require.Equal(h, []string{"1:first"}, h.read(1, h.tail(), "x"))
}

func numbers(h *harness) {
	name := h.Name()
	send := func(n uint64, data string) (sharedlog.LSN, error) {
		return h.log.Append(sharedlog.Group{Writer: name, Number: n, Records: []sharedlog.Record{rec(data, "x")}}).Wait(h.ctx())
	}
	_, err := send(2, "a gap at the start")
	h.kind(sharedlog.KindOutOfOrder, err)
	for n := range uint64(5) {
		lsn, err := send(n+1, "once")
		require.NoError(h, err)
		require.Equal(h, sharedlog.LSN(n+1), lsn)
	}
	lsn, err := send(3, "again")
	if !h.f.Seals || sharedlog.KindOf(err) != sharedlog.KindUnknown {
		require.NoError(h, err)
		require.Equal(h, sharedlog.LSN(3), lsn, "answered with its first place")
	}
	_, err = send(7, "a gap")
	h.kind(sharedlog.KindOutOfOrder, err)
	lsn, err = send(6, "the next")
	require.NoError(h, err)
	require.Equal(h, sharedlog.LSN(6), lsn)
	require.Equal(h, []string{"1:once", "2:once", "3:once", "4:once", "5:once", "6:the next"}, h.read(1, 7, "x"))
}

func tail(h *harness) {
	w := h.writer(sharedlog.Condition{})
	for i := range 100 {
		lsn := h.append(w, rec(fmt.Sprint(i), "x"))
		at := h.tail()
		require.Greater(h, at, lsn)
		rows := h.read(lsn, at, "x")
		require.Equal(h, fmt.Sprintf("%d:%d", lsn, i), rows[len(rows)-1])
	}
}

func metadata(h *harness) {
	c, err := h.log.Get(h.ctx(), "k")
	require.NoError(h, err)
	require.Empty(h, c.Value)
	require.Equal(h, sharedlog.First, h.set("k", "", "v"))
	c, err = h.log.CompareAndSet(h.ctx(), "k", []byte("w"), []byte("x"))
	h.kind(sharedlog.KindConflict, err)
	require.Equal(h, "v", string(c.Value))
	h.append(h.writer(sharedlog.Condition{}), rec("a", "x"))
	require.Equal(h, sharedlog.LSN(2), h.set("k", "v", ""))
	c, err = h.log.Get(h.ctx(), "k")
	require.NoError(h, err)
	require.Empty(h, c.Value)
	require.Equal(h, sharedlog.LSN(2), c.Place)
	h.set("k", "", "again")
}

func tagsOnce(h *harness) {
	w := h.writer(sharedlog.Condition{})
	h.append(w, rec("a", "x", "y", "z"), rec("b", "z"), rec("c", "y"))
	require.Equal(h, []string{"1:a", "2:b", "3:c"}, h.read(1, 4, "x", "y", "z"))
	require.Equal(h, []string{"1:a", "3:c"}, h.read(1, 4, "y", "x"))
	var tags []sharedlog.Tag
	for i := range 30 {
		tags = append(tags, sharedlog.Tag(fmt.Sprint("t", i)))
	}
	at := h.append(w, rec("many", tags...))
	require.Equal(h, []string{fmt.Sprintf("%d:many", at)}, h.read(1, h.tail(), tags...))
}

func fromUntil(h *harness) {
	w := h.writer(sharedlog.Condition{})
	for i := range 10 {
		h.append(w, rec(fmt.Sprint("a", i), "x"), rec(fmt.Sprint("b", i), "x"))
	}
	require.Equal(h, []string{"1:a0", "2:b0"}, h.read(0, 3, "x"))
	require.Equal(h, []string{"4:b1", "5:a2"}, h.read(4, 6, "x"), "in the middle of a group, at both ends")
	require.Empty(h, h.read(7, 7, "x"))
	require.Empty(h, h.read(9, 7, "x"))
}

func untilAbove(h *harness) {
	w := h.writer(sharedlog.Condition{})
	h.append(w, rec("a", "x"))
	got := make(chan []string, 1)
	failed := make(chan error, 1)
	go func() {
		rows, err := Read(h.ctx(), h.log, 1, 4, "x")
		got <- rows
		failed <- err
	}()
	h.append(w, rec("b", "other"), rec("c", "x"))
	h.append(w, rec("d", "x"))
	require.Equal(h, []string{"1:a", "3:c"}, <-got)
	require.NoError(h, <-failed)
}

func readyTry(h *harness) {
	w := h.writer(sharedlog.Condition{})
	r, err := h.log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}})
	require.NoError(h, err)
	defer r.Close()
	b, err := r.TryNext()
	require.NoError(h, err)
	require.Empty(h, b.Entries)
	for i := range 50 {
		lsn := h.append(w, rec("data", "x"))
		h.append(w, rec("data", "y"))
		for seen := false; !seen; {
			select {
			case <-r.Ready():
			case <-h.ctx().Done():
				h.Fatalf("append %d: no word of it", i)
			}
			for {
				b, err := r.TryNext()
				require.NoError(h, err)
				if len(b.Entries) == 0 {
					break
				}
				require.Equal(h, lsn, b.Entries[0].LSN)
				seen = true
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = r.Next(ctx)
	require.ErrorIs(h, err, context.Canceled)
}

func last(h *harness) {
	w := h.writer(sharedlog.Condition{})
	for i := range 40 {
		h.append(w, rec(fmt.Sprint("a", i), "x"), rec("other", "y"), rec(fmt.Sprint("b", i), "x"))
	}
	at := func(below sharedlog.LSN) string {
		e, ok, err := h.log.Last(h.ctx(), "x", below)
		require.NoError(h, err)
		if !ok {
			return "none"
		}
		return fmt.Sprintf("%d:%s", e.LSN, e.Data)
	}
	require.Equal(h, "none", at(1))
	require.Equal(h, "1:a0", at(2))
	require.Equal(h, "1:a0", at(3))
	require.Equal(h, "3:b0", at(4))
	require.Equal(h, "120:b39", at(121))
	require.Equal(h, "120:b39", at(1<<40))
	_, ok, err := h.log.Last(h.ctx(), "nothing", 1<<40)
	require.NoError(h, err)
	require.False(h, ok)
}

func trim(h *harness) {
	w := h.writer(sharedlog.Condition{})
	for i := range 30 {
		h.append(w, rec(fmt.Sprint(i), "x"), rec(fmt.Sprint(i), "y"))
	}
	require.NoError(h, h.log.Trim(h.ctx(), "x", 21))
	require.NoError(h, h.log.Trim(h.ctx(), "x", 5), "lower: nothing changes")
	for range 2 {
		_, err := Read(h.ctx(), h.log, 1, 60, "x")
		h.kind(sharedlog.KindTrimmed, err)
		_, err = Read(h.ctx(), h.log, 20, 60, "y", "x")
		h.kind(sharedlog.KindTrimmed, err)
		require.Len(h, h.read(21, 61, "x"), 20)
		require.Len(h, h.read(1, 61, "y"), 30)
		require.Len(h, h.read(sharedlog.Oldest, 61, "x"), 20)
		require.Len(h, h.read(sharedlog.Oldest, 61, "y"), 30)
		require.Len(h, h.read(sharedlog.Oldest, 61, "y", "x"), 40, "where all of them are there")
		_, _, err = h.log.Last(h.ctx(), "x", 20)
		h.kind(sharedlog.KindTrimmed, err)
		_, ok, err := h.log.Last(h.ctx(), "x", 61)
		require.NoError(h, err)
		require.True(h, ok)
		h.kind(sharedlog.KindInvalid, h.log.Trim(h.ctx(), "x", h.tail()+1))
		h.log = h.f.Reopen(h, h.log)
	}
}

func trimLagging(h *harness) {
	w := h.writer(sharedlog.Condition{})
	r, err := h.log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, Credit: 1})
	require.NoError(h, err)
	defer r.Close()
	for range 50 {
		h.append(w, rec(strings.Repeat("x", 100), "x"))
	}
	b, err := r.Next(h.ctx())
	require.NoError(h, err)
	seen := b.Entries[len(b.Entries)-1].LSN
	require.Less(h, seen, sharedlog.LSN(50), "the credit is one byte")
	require.NoError(h, h.log.Trim(h.ctx(), "x", 51))
	for err == nil {
		b, err = r.Next(h.ctx())
		if err == nil {
			require.Equal(h, seen+1, b.Entries[0].LSN, "a silent hole")
			seen = b.Entries[len(b.Entries)-1].LSN
			require.Less(h, seen, sharedlog.LSN(50), "all was shown: no trim was seen")
		}
	}
	h.kind(sharedlog.KindTrimmed, err)
	_, again := r.Next(h.ctx())
	h.kind(sharedlog.KindTrimmed, again)
}

func slowReaders(h *harness) {
	slow, err := h.log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, Credit: 4 << 10})
	require.NoError(h, err)
	defer slow.Close()
	fast, err := h.log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}})
	require.NoError(h, err)
	defer fast.Close()
	w := h.writer(sharedlog.Condition{})
	const n = 400
	next := sharedlog.LSN(1)
	for range n {
		h.append(w, rec(strings.Repeat("x", 1000), "x"))
		b, err := fast.Next(h.ctx())
		require.NoError(h, err)
		require.Equal(h, next, b.Entries[0].LSN)
		next = b.Frontier
	}
	for at := sharedlog.LSN(1); at <= n; {
		b, err := slow.Next(h.ctx())
		require.NoError(h, err)
		for _, e := range b.Entries {
			require.Equal(h, at, e.LSN)
			at++
		}
	}
}

func largeGroups(h *harness) {
	w := h.writer(sharedlog.Condition{})
	big := strings.Repeat("0123456789abcdef", (4<<20)/16)
	for i := range 5 {
		at := h.append(w, rec(big[i:], "x"), rec("small", "y"))
		rows := h.read(at, at+2, "x", "y")
		require.Len(h, rows, 2)
		require.Equal(h, fmt.Sprintf("%d:%s", at, big[i:]), rows[0])
	}
	h.append(w, rec(strings.Repeat("z", sharedlog.MaxGroupBytes), "x"))
}

func closing(h *harness) {
	w := h.writer(sharedlog.Condition{})
	h.append(w, rec("a", "x"))
	r, err := h.log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"never"}})
	require.NoError(h, err)
	ended := make(chan error, 1)
	go func() {
		_, err := r.Next(h.ctx())
		ended <- err
	}()
	one, err := h.log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}})
	require.NoError(h, err)
	require.NoError(h, one.Close())
	require.NoError(h, one.Close())
	_, err = one.Next(h.ctx())
	h.kind(sharedlog.KindClosed, err)
	require.NoError(h, h.log.Close())
	h.kind(sharedlog.KindClosed, <-ended)
	_, err = w.Append(rec("late", "x")).Wait(h.ctx())
	h.kind(sharedlog.KindClosed, err)
	_, err = h.log.Tail(h.ctx())
	h.kind(sharedlog.KindClosed, err)
	_, err = h.log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}})
	h.kind(sharedlog.KindClosed, err)
	_, err = h.log.CompareAndSet(h.ctx(), "k", nil, []byte("v"))
	h.kind(sharedlog.KindClosed, err)
}

func reopening(h *harness) {
	var want []string
	for round := range 4 {
		h.set("k", map[bool]string{true: "", false: fmt.Sprint(round - 1)}[round == 0], fmt.Sprint(round))
		w := h.writer(sharedlog.Condition{Key: "k", Value: []byte(fmt.Sprint(round))})
		for i := range 25 {
			lsn := h.append(w, rec(fmt.Sprint("r", round, ".", i), "x"), rec("filler", "y"))
			require.Equal(h, sharedlog.LSN(2*len(want)+1), lsn, "dense over restarts")
			want = append(want, fmt.Sprintf("%d:r%d.%d", lsn, round, i))
		}
		before := h.tail()
		h.log = h.f.Reopen(h, h.log)
		require.Equal(h, before, h.tail())
		require.Equal(h, want, h.read(1, before, "x"))
		c, err := h.log.Get(h.ctx(), "k")
		require.NoError(h, err)
		require.Equal(h, fmt.Sprint(round), string(c.Value))
		e, ok, err := h.log.Last(h.ctx(), "x", before)
		require.NoError(h, err)
		require.True(h, ok)
		require.Equal(h, want[len(want)-1], fmt.Sprintf("%d:%s", e.LSN, e.Data))
	}
}

// Many writers with several groups in flight and many readers: every reader sees each acknowledged
// group whole and at its LSN, and each writer's groups in order.
func many(h *harness) {
	const writers, groups, readers = 6, 120, 4
	type ack struct {
		writer, n int
		lsn       sharedlog.LSN
	}
	acks := make(chan ack, writers*groups)
	end := sharedlog.LSN(1 + writers*groups*3)
	var wg sync.WaitGroup
	for i := range writers {
		w := h.writer(sharedlog.Condition{})
		wg.Go(func() {
			var inflight []*sharedlog.Pending
			drain := func(down int) {
				for len(inflight) > down {
					lsn, err := inflight[0].Wait(h.ctx())
					if err != nil {
						h.Errorf("writer %d: %v", i, err)
					}
					acks <- ack{i, groups - len(inflight), lsn}
					inflight = inflight[1:]
				}
			}
			for n := range groups {
				id := fmt.Sprintf("%d.%d", i, n)
				inflight = append(inflight, w.Append(rec(id, "all"), rec(id, sharedlog.Tag(fmt.Sprint("w", i))), rec(id, "all", "third")))
				if len(inflight) > 8 {
					lsn, err := inflight[0].Wait(h.ctx())
					if err != nil {
						h.Errorf("writer %d: %v", i, err)
					}
					acks <- ack{i, n - 8, lsn}
					inflight = inflight[1:]
				}
			}
			drain(0)
		})
	}
	seen := make([][]string, readers)
	for i := range readers {
		wg.Go(func() {
			rows, err := Read(h.ctx(), h.log, 1, end, "all")
			if err != nil {
				h.Errorf("reader %d: %v", i, err)
			}
			seen[i] = rows
		})
	}
	wg.Wait()
	close(acks)
	require.Len(h, seen[0], 2*writers*groups)
	for _, rows := range seen[1:] {
		require.Equal(h, seen[0], rows)
	}
	for a := range acks {
		id := fmt.Sprintf("%d.%d", a.writer, a.n)
		require.True(h, slices.Contains(seen[0], fmt.Sprintf("%d:%s", a.lsn, id)), "%s at %d", id, a.lsn)
		require.True(h, slices.Contains(seen[0], fmt.Sprintf("%d:%s", a.lsn+2, id)), "%s at %d", id, a.lsn+2)
	}
}
