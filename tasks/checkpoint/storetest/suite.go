package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
)

// Home is the environment of one store, which can crash and restart.
type Home interface {
	// Open opens the store.
	Open(t *testing.T) checkpoint.Store
	// Crash ends the store's server as SIGKILL would, and restarts it. The caller has closed all
	// stores that it opened.
	Crash(t *testing.T)
}

// Run runs all scenarios, each with an environment of its own.
func Run(t *testing.T, home func(t *testing.T) Home) {
	for _, s := range []struct {
		name string
		f    func(t *testing.T, h Home)
	}{
		{"Empty", empty},
		{"WriteAndLoad", writeAndLoad},
		{"ManyBatches", manyBatches},
		{"Fenced", fenced},
		{"TokensByGroup", tokensByGroup},
		{"Moved", moved},
		{"Durable", durable},
		{"GroupsAreApart", apart},
		{"Drop", drop},
		{"Clear", clearGroup},
		{"Random", random},
		{"TwoWriters", twoWriters},
		{"OddBytes", oddBytes},
	} {
		t.Run(s.name, func(t *testing.T) { s.f(t, home(t)) })
	}
}

var (
	ctx = context.Background()
	g0  = checkpoint.Group{Job: "job-1", Stage: "count", Group: 0}
)

func open(t *testing.T, h Home) checkpoint.Store {
	s := h.Open(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(k, v string) checkpoint.Entry {
	return checkpoint.Entry{Key: []byte(k), Value: append([]byte{}, v...)}
}

func del(k string) checkpoint.Entry { return checkpoint.Entry{Key: []byte(k)} }

func write(g checkpoint.Group, token, from, to sharedlog.LSN, es ...checkpoint.Entry) []checkpoint.Write {
	return []checkpoint.Write{{Group: g, Token: token, From: from, To: to, Entries: es}}
}

// load returns all entries of a group.
func load(t *testing.T, s checkpoint.Store, g checkpoint.Group) (map[string]string, sharedlog.LSN) {
	t.Helper()
	m := map[string]string{}
	at, err := s.Load(ctx, g, func(es []checkpoint.Entry) error {
		for _, e := range es {
			m[string(e.Key)] = string(e.Value)
		}
		for _, e := range es { // the store may overwrite them, so they must not be kept
			clear(e.Value)
		}
		return nil
	})
	require.NoError(t, err)
	return m, at
}

func begin(t *testing.T, s checkpoint.Store, g checkpoint.Group, token, at sharedlog.LSN) {
	t.Helper()
	have, err := s.Begin(ctx, g, token)
	require.NoError(t, err)
	require.Equal(t, at, have)
}

func empty(t *testing.T, h Home) {
	s := open(t, h)
	m, at := load(t, s, g0)
	require.Empty(t, m)
	require.Zero(t, at)
	begin(t, s, g0, 5, 0)
	require.NoError(t, s.Write(ctx, write(g0, 5, 0, 9)))
	_, at = load(t, s, g0)
	require.EqualValues(t, 9, at, "a write without entries moves the position")
	require.NoError(t, s.Write(ctx, nil))
}

func writeAndLoad(t *testing.T, h Home) {
	s := open(t, h)
	begin(t, s, g0, 5, 0)
	require.NoError(t, s.Write(ctx, write(g0, 5, 0, 10, put("a", "1"), put("b", ""), put("c", "3"))))
	require.NoError(t, s.Write(ctx, write(g0, 5, 10, 20, put("a", "one"), del("c"), del("never"))))
	m, at := load(t, s, g0)
	require.Equal(t, map[string]string{"a": "one", "b": ""}, m, "an empty value is a value")
	require.EqualValues(t, 20, at)
	begin(t, s, g0, 6, 20)
}

func manyBatches(t *testing.T, h Home) {
	s := open(t, h)
	begin(t, s, g0, 5, 0)
	var es []checkpoint.Entry
	for i := range 5000 {
		es = append(es, put(fmt.Sprintf("key %d", i), fmt.Sprint(i)))
	}
	es = append(es, checkpoint.Entry{Key: []byte("large"), Value: bytes.Repeat([]byte("x"), 3<<20)}, put("behind", "x"))
	require.NoError(t, s.Write(ctx, write(g0, 5, 0, 10, es...)))
	m, _ := load(t, s, g0)
	require.Len(t, m, 5002)
	for i := range 5000 {
		require.Equal(t, fmt.Sprint(i), m[fmt.Sprintf("key %d", i)])
	}
	require.Len(t, m["large"], 3<<20)
}

func fenced(t *testing.T, h Home) {
	old, s := open(t, h), open(t, h)
	begin(t, old, g0, 5, 0)
	require.NoError(t, old.Write(ctx, write(g0, 5, 0, 10, put("a", "old"))))
	begin(t, s, g0, 7, 10)
	require.ErrorIs(t, old.Write(ctx, write(g0, 5, 10, 20, put("a", "zombie"))), checkpoint.ErrFenced)
	_, err := old.Begin(ctx, g0, 6)
	require.ErrorIs(t, err, checkpoint.ErrFenced)
	begin(t, s, g0, 7, 10)
	require.NoError(t, s.Write(ctx, write(g0, 7, 10, 30, put("b", "new"))))
	m, at := load(t, s, g0)
	require.Equal(t, map[string]string{"a": "old", "b": "new"}, m)
	require.EqualValues(t, 30, at)
}

// tokensByGroup fences one group of a writer that has several: it keeps the others, learns by Begin
// how far a refused Write came, and makes that durable.
func tokensByGroup(t *testing.T, h Home) {
	var g [4]checkpoint.Group
	old := h.Open(t)
	for i := range g {
		g[i] = checkpoint.Group{Job: "job-1", Stage: "count", Group: i}
		begin(t, old, g[i], 5+sharedlog.LSN(i), 0)
	}
	s := h.Open(t)
	begin(t, s, g[1], 20, 0)
	var all []checkpoint.Write
	for i := range g {
		all = append(all, write(g[i], 5+sharedlog.LSN(i), 0, 10, put("k", "old"))...)
	}
	require.ErrorIs(t, old.Write(ctx, all), checkpoint.ErrFenced)
	begin(t, old, g[0], 5, 10)
	_, err := old.Begin(ctx, g[1], 6)
	require.ErrorIs(t, err, checkpoint.ErrFenced)
	begin(t, old, g[2], 7, 0)
	require.NoError(t, old.Write(ctx, append(write(g[0], 5, 10, 10), all[2:]...)))
	require.NoError(t, s.Write(ctx, write(g[1], 20, 0, 30, put("k", "new"))))
	// A group that moves on to a third writer, and one whose new writer has a token below those of
	// the others.
	begin(t, s, g[3], 9, 10)
	require.ErrorIs(t, old.Write(ctx, write(g[3], 8, 10, 20, put("k", "zombie"))), checkpoint.ErrFenced)
	require.NoError(t, old.Write(ctx, write(g[2], 7, 10, 20, put("k", "again"))))
	require.NoError(t, old.Close())
	require.NoError(t, s.Close())
	h.Crash(t)
	s = open(t, h)
	for i, want := range []struct {
		value string
		at    sharedlog.LSN
	}{{"old", 10}, {"new", 30}, {"again", 20}, {"old", 10}} {
		m, at := load(t, s, g[i])
		require.Equal(t, map[string]string{"k": want.value}, m, "%v", g[i])
		require.Equal(t, want.at, at, "%v", g[i])
	}
}

func moved(t *testing.T, h Home) {
	s := open(t, h)
	begin(t, s, g0, 5, 0)
	require.NoError(t, s.Write(ctx, write(g0, 5, 0, 10, put("a", "1"))))
	for _, from := range []sharedlog.LSN{0, 9, 11} {
		require.ErrorIs(t, s.Write(ctx, write(g0, 5, from, 20, put("a", "2"))), checkpoint.ErrMoved, "from %d", from)
	}
	m, at := load(t, s, g0)
	require.Equal(t, map[string]string{"a": "1"}, m)
	require.EqualValues(t, 10, at)
}

func durable(t *testing.T, h Home) {
	s := h.Open(t)
	begin(t, s, g0, 5, 0)
	for i := range sharedlog.LSN(10) {
		require.NoError(t, s.Write(ctx, write(g0, 5, i, i+1, put(fmt.Sprint(i), "v"))))
	}
	require.NoError(t, s.Close())
	h.Crash(t)
	s = open(t, h)
	m, at := load(t, s, g0)
	require.Len(t, m, 10)
	require.EqualValues(t, 10, at)
	begin(t, s, g0, 6, 10)
}

func apart(t *testing.T, h Home) {
	s := open(t, h)
	groups := []checkpoint.Group{
		g0,
		{Job: "job-1", Stage: "count", Group: 1},
		{Job: "job-1", Stage: "count", Group: 256},
		{Job: "job-1", Stage: "count2", Group: 0},
		{Job: "job-10", Stage: "count", Group: 0},
		{Job: "job", Stage: "1count", Group: 0},
	}
	var ws []checkpoint.Write
	for i, g := range groups {
		begin(t, s, g, 5, 0)
		ws = append(ws, write(g, 5, 0, sharedlog.LSN(10+i), put("k", fmt.Sprint(i)), put("\x00", "zero"), put("\xff", "last"))...)
	}
	require.NoError(t, s.Write(ctx, ws))
	for i, g := range groups {
		m, at := load(t, s, g)
		require.Equal(t, map[string]string{"k": fmt.Sprint(i), "\x00": "zero", "\xff": "last"}, m)
		require.EqualValues(t, 10+i, at)
	}
}

func drop(t *testing.T, h Home) {
	s := open(t, h)
	other := checkpoint.Group{Job: "job-10", Stage: "count", Group: 0}
	stage := checkpoint.Group{Job: "job-1", Stage: "more", Group: 7}
	for _, g := range []checkpoint.Group{g0, other, stage} {
		begin(t, s, g, 5, 0)
		require.NoError(t, s.Write(ctx, write(g, 5, 0, 10, put("k", "v"))))
	}
	require.NoError(t, s.Drop(ctx, "job-1"))
	require.NoError(t, s.Drop(ctx, "job-1"), "again")
	for _, g := range []checkpoint.Group{g0, stage} {
		m, at := load(t, s, g)
		require.Empty(t, m)
		require.Zero(t, at)
	}
	m, at := load(t, s, other)
	require.Len(t, m, 1)
	require.EqualValues(t, 10, at)
}

// A group that is cleared has nothing, and a new writer. Neither does one that has been replaced clear it, nor write there; the
// groups beside it stay.
func clearGroup(t *testing.T, h Home) {
	s := open(t, h)
	beside := checkpoint.Group{Job: g0.Job, Stage: g0.Stage, Group: 1}
	for _, g := range []checkpoint.Group{g0, beside} {
		begin(t, s, g, 5, 0)
		require.NoError(t, s.Write(ctx, write(g, 5, 0, 10, put("k", "v"))))
	}
	require.NoError(t, s.Clear(ctx, g0, 6))
	m, at := load(t, s, g0)
	require.Empty(t, m)
	require.Zero(t, at)
	require.ErrorIs(t, s.Write(ctx, write(g0, 5, 0, 11, put("old", "v"))), checkpoint.ErrFenced)
	require.ErrorIs(t, s.Clear(ctx, g0, 5), checkpoint.ErrFenced)
	require.NoError(t, s.Write(ctx, write(g0, 6, 0, 12, put("new", "v"))))
	require.NoError(t, s.Clear(ctx, beside, 5), "its own")
	begin(t, s, beside, 5, 0)
	m, at = load(t, s, g0)
	require.Equal(t, map[string]string{"new": "v"}, m)
	require.EqualValues(t, 12, at)
	require.NoError(t, s.Drop(ctx, g0.Job))
}

func oddBytes(t *testing.T, h Home) {
	s := open(t, h)
	begin(t, s, g0, 5, 0)
	odd := []string{"", "\x00", "\x00\x00", "\r\n", "{}", "\xff\xfe", "e", "m", "ключ"}
	var es []checkpoint.Entry
	for _, k := range odd {
		es = append(es, put(k, k+k))
	}
	require.NoError(t, s.Write(ctx, write(g0, 5, 0, 10, es...)))
	m, _ := load(t, s, g0)
	require.Len(t, m, len(odd))
	for _, k := range odd {
		require.Equal(t, k+k, m[k])
	}
}

// random compares the store with a map after many writes, some of them refused, and crashes.
func random(t *testing.T, h Home) {
	rng := rand.New(rand.NewPCG(1, 2))
	twin, at, token := map[string]string{}, sharedlog.LSN(0), sharedlog.LSN(1)
	s := h.Open(t)
	begin(t, s, g0, token, 0)
	for range 300 {
		switch rng.IntN(20) {
		case 0:
			require.NoError(t, s.Close())
			h.Crash(t)
			s = h.Open(t)
			fallthrough
		case 1:
			token += sharedlog.LSN(rng.IntN(3))
			begin(t, s, g0, token, at)
		case 2:
			require.Error(t, s.Write(ctx, write(g0, token, at+1, at+2, put("x", "no"))))
		case 3:
			require.Error(t, s.Write(ctx, write(g0, token-1, at, at+2, put("x", "no"))))
		default:
			var es []checkpoint.Entry
			used := map[string]bool{}
			for range rng.IntN(40) {
				k := fmt.Sprint(rng.IntN(100))
				if used[k] {
					continue
				}
				used[k] = true
				if rng.IntN(3) == 0 {
					es = append(es, del(k))
					delete(twin, k)
				} else {
					v := fmt.Sprint(rng.Uint64())
					es = append(es, put(k, v))
					twin[k] = v
				}
			}
			require.NoError(t, s.Write(ctx, write(g0, token, at, at+5, es...)))
			at += 5
		}
		if rng.IntN(10) == 0 {
			m, have := load(t, s, g0)
			require.Equal(t, twin, m)
			require.Equal(t, at, have)
		}
	}
	require.NoError(t, s.Close())
}

// twoWriters races an old instance against a new one: whatever the old one still writes, replay
// from the position makes the new one's state right, and after its Begin only its own writes change
// anything.
func twoWriters(t *testing.T, h Home) {
	old, s := open(t, h), open(t, h)
	value := func(lsn sharedlog.LSN) string { return string(binary.BigEndian.AppendUint64(nil, uint64(lsn))) }
	begin(t, old, g0, 5, 0)
	var wg sync.WaitGroup
	started := make(chan struct{})
	wg.Go(func() {
		for i := sharedlog.LSN(0); ; i++ {
			if err := old.Write(ctx, write(g0, 5, i, i+1, put("k", value(i)))); err != nil {
				require.ErrorIs(t, err, checkpoint.ErrFenced)
				return
			}
			if i == 20 {
				close(started)
			}
		}
	})
	<-started
	at, err := s.Begin(ctx, g0, 6)
	require.NoError(t, err)
	m, _ := load(t, s, g0)
	require.Equal(t, value(at-1), m["k"])
	for i := range sharedlog.LSN(50) {
		require.NoError(t, s.Write(ctx, write(g0, 6, at+i, at+i+1, put("k", value(at+i)))))
	}
	wg.Wait()
	m, _ = load(t, s, g0)
	require.Equal(t, value(at+49), m["k"])
}
