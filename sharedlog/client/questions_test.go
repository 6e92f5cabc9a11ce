package client

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// A change whose answer was lost is sent again. The value that is found then decides: its own value
// means success, another value an unknown outcome. Only a change that is refused at the first
// attempt is a conflict.
func TestLostAnswerOfAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		c.open()
		l := c.connect(Options{})
		defer l.Close()
		var answers []*logpb.ProposeReply
		c.net.Handle("seq", "sequencer/propose", func(st transport.Stream) error {
			if err := st.Recv(new(logpb.ProposeRequest)); err != nil {
				return err
			}
			c.mu.Lock()
			m := answers[0]
			answers = answers[1:]
			c.mu.Unlock()
			return st.Send(m)
		})
		lost := &logpb.ProposeReply{Unknown: true}
		found := func(value string) *logpb.ProposeReply { return &logpb.ProposeReply{Place: 7, Value: []byte(value)} }
		for name, x := range map[string]struct {
			old, new string
			answers  []*logpb.ProposeReply
			err      error
		}{
			"made":                    {"a", "b", []*logpb.ProposeReply{{Ok: true, Place: 7, Value: []byte("b")}}, nil},
			"refused":                 {"a", "b", []*logpb.ProposeReply{found("c")}, sharedlog.ErrConflict},
			"refused, the same value": {"a", "b", []*logpb.ProposeReply{found("b")}, sharedlog.ErrConflict},
			"lost and made":           {"a", "b", []*logpb.ProposeReply{lost, lost, found("b")}, nil},
			"lost and replaced":       {"a", "b", []*logpb.ProposeReply{lost, found("c")}, sharedlog.ErrUnknown},
			"lost and made then":      {"a", "b", []*logpb.ProposeReply{lost, {Ok: true, Place: 7, Value: []byte("b")}}, nil},
			"lost, the old value":     {"a", "b", []*logpb.ProposeReply{lost, found("a")}, sharedlog.ErrUnknown},
		} {
			answers = x.answers
			change, err := l.CompareAndSet(t.Context(), "k", []byte(x.old), []byte(x.new))
			require.ErrorIs(t, err, x.err, name)
			require.EqualValues(t, 7, change.Place, name)
			require.Empty(t, answers, name)
		}
	})
}

// A client that only reads and trims needs a sequencer, but no shard that accepts appends. A client
// that appends waits for an open shard, or gets an error that there is none.
func TestOpenWithoutAShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o := Options{Sequencers: []string{"seq"}, Dialer: c.net, Logger: quiet}
		_, err := Connect(ctx, o)
		require.ErrorContains(t, err, "no shard is open")
		unknown := o
		unknown.Sequencers, unknown.NoAppends = []string{"nowhere"}, true
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = Connect(ctx, unknown)
		require.ErrorContains(t, err, "is not ready", "no sequencer answers")

		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o.NoAppends = true
		l, err := Connect(ctx, o)
		require.NoError(t, err)
		defer l.Close()
		c.net.Handle("seq", "sequencer/propose", func(st transport.Stream) error {
			if err := st.Recv(new(logpb.ProposeRequest)); err != nil {
				return err
			}
			return st.Send(&logpb.ProposeReply{Ok: true})
		})
		require.NoError(t, l.Trim(t.Context(), "a", 1))
		p := l.Append(sharedlog.Group{Writer: "w", Number: 1, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"a"}}}})
		elapse(time.Minute)
		require.False(t, done(p), "there is no shard")
		home := c.open()
		elapse(time.Second)
		home.order(1)
		_, err = p.Wait(t.Context())
		require.NoError(t, err)
	})
}

func done(p *sharedlog.Pending) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// Last waits until this process knows every shard that was opened below the tail: the newest record
// may be in one that it does not know yet (pitfall L2). If nothing is found and the tag was
// trimmed, that is an error: the last record may have been trimmed.
func TestLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		c.open()
		l := c.connect(Options{})
		defer l.Close()
		c.net.Handle("seq", "sequencer/get", func(st transport.Stream) error {
			if err := st.Recv(new(logpb.GetRequest)); err != nil {
				return err
			}
			return st.Send(&logpb.GetReply{Place: 100, Opened: 2})
		})
		var mu sync.Mutex
		last := map[string]*logpb.LastReply{"node001": {Found: true, Lsn: 10}, "node002": {Found: true, Lsn: 50}}
		for addr := range last {
			c.net.Handle(addr, "storage/last", func(st transport.Stream) error {
				req := new(logpb.LastRequest)
				if err := st.Recv(req); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				return st.Send(last[addr])
			})
		}
		got := make(chan sharedlog.LSN, 1)
		go func() {
			e, _, err := l.Last(t.Context(), "x", 1000)
			if err == nil {
				got <- e.LSN
			}
		}()
		elapse(time.Second)
		require.Empty(t, got, "it knows of one shard, and two were opened")
		c.open()
		require.EqualValues(t, 50, <-got)

		mu.Lock()
		last["node001"], last["node002"] = &logpb.LastReply{Trim: 20}, &logpb.LastReply{Trim: 30}
		mu.Unlock()
		_, ok, err := l.Last(t.Context(), "y", 1000)
		require.ErrorIs(t, err, sharedlog.ErrTrimmed)
		require.False(t, ok)
		mu.Lock()
		last["node001"], last["node002"] = &logpb.LastReply{Trim: 1}, &logpb.LastReply{Trim: 1}
		mu.Unlock()
		_, ok, err = l.Last(t.Context(), "z", 1000)
		require.NoError(t, err)
		require.False(t, ok, "nothing was ever there")
	})
}

// Tail and Get bring Stats up to date, also of a client that neither appends nor reads: the code that
// waits for Stats().Durable asks for the tail.
func TestTailMovesStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		c.open()
		l := c.connect(Options{})
		defer l.Close()
		place := uint64(100)
		c.net.Handle("seq", "sequencer/get", func(st transport.Stream) error {
			if err := st.Recv(new(logpb.GetRequest)); err != nil {
				return err
			}
			return st.Send(&logpb.GetReply{Place: place, Opened: 1})
		})
		tail, err := l.Tail(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 100, tail)
		require.Equal(t, tail, l.Stats().Durable)
		place = 120
		_, err = l.Get(t.Context(), "key")
		require.NoError(t, err)
		require.EqualValues(t, 120, l.Stats().Tail)
		place = 110 // a late answer
		_, err = l.Tail(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 120, l.Stats().Durable)
	})
}

// Last asks each replica in turn for the newest record of a tag: it skips a damaged one as long as
// others may come back.
func TestLastWaitsForReplicasThatAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		c.open()
		l := c.connect(Options{})
		defer l.Close()
		sh := &logpb.Shard{Id: 1, Addrs: []string{"damaged", "away"}}
		asked := 0
		c.net.Handle("damaged", "storage/last", func(st transport.Stream) error {
			asked++
			return sharedlog.Errorf(sharedlog.KindCorrupt, "file x")
		})
		l.shards.take(&logpb.FollowReply{Index: 100, Events: []*logpb.Event{{Index: 100, What: &logpb.Event_Placed{Placed: sh}}}})
		began := time.Now()
		_, err := l.lastIn(t.Context(), sh, new(logpb.LastRequest))
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
		require.ErrorContains(t, err, "node damaged, shard 1: ")
		require.ErrorContains(t, err, "start those that are away (away)")
		require.GreaterOrEqual(t, time.Since(began), damagedFor)
		require.Less(t, asked, 1000)
		time.AfterFunc(damagedFor/2, func() {
			c.net.Handle("away", "storage/last", func(st transport.Stream) error { return st.Send(&logpb.LastReply{Found: true, Lsn: 7}) })
		})
		reply, err := l.lastIn(t.Context(), sh, new(logpb.LastRequest))
		require.NoError(t, err)
		require.EqualValues(t, 7, reply.GetLsn())

		c.net.Handle("away", "storage/last", func(st transport.Stream) error { return sharedlog.Errorf(sharedlog.KindCorrupt, "file y") })
		began = time.Now()
		_, err = l.lastIn(t.Context(), sh, new(logpb.LastRequest))
		require.ErrorContains(t, err, "node away, shard 1: ")
		require.Less(t, time.Since(began), time.Second, "all are damaged")
	})
}

// A cursor leaves a replica with a damaged copy. When every replica has reported damage more than
// once, the reader ends with the error. Trimmed records are trimmed on every replica, so ErrTrimmed
// ends the reader at once.
func TestErrorsOfCursors(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.follow(0, 1, true)
	fail := func(r *reader, err error) {
		p := r.order[0]
		w.log.reading.mu.Lock()
		s := w.log.reading.at[p.id].session
		w.log.reading.mu.Unlock()
		s.failed(p.id, p, err)
		w.resume()
	}
	corrupt := sharedlog.Errorf(sharedlog.KindCorrupt, "segments/00000001-00000003.seg, offset 0")
	f := w.reader(sharedlog.ReaderOptions{Tags: worldTags[:1]})
	for range 2 * len(w.names) {
		fail(f.r, corrupt)
		_, err := f.r.TryNext()
		require.NoError(t, err, "another replica may be whole")
	}
	fail(f.r, corrupt)
	_, err := f.r.TryNext()
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	for _, part := range []string{"node n", "shard 1", "00000001-00000003.seg", "shard's nodes (n", "put the file back from a copy, or begin behind it"} {
		require.ErrorContains(t, err, part)
	}

	f = w.reader(sharedlog.ReaderOptions{Tags: worldTags[:1]})
	fail(f.r, sharedlog.Errorf(sharedlog.KindTrimmed, "tag a begins at 9"))
	_, err = f.r.TryNext()
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
	_, err = f.r.Next(context.Background())
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)

	// The shard is forgotten at that moment: it has no records left that could be damaged.
	w.open()
	w.seal(1)
	w.forget(1)
	f = w.reader(sharedlog.ReaderOptions{Tags: worldTags[:1]})
	w.follow(1, uint64(len(w.metalog)), false)
	fail(f.r, corrupt)
	w.rest([]*follower{f})
	require.False(t, f.done)
	require.Len(t, f.r.order, 1)
}

// A reader waits for replicas that do not answer, which may be undamaged, although the one that
// answers is damaged. In the end its error says which node is damaged and which are down.
func TestADamagedReplicaAmongOthersThatAreAway(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.cut(record{shard: 1, tags: worldTags[:1]})
	w.follow(0, uint64(len(w.metalog)), true)
	corrupt := sharedlog.Errorf(sharedlog.KindCorrupt, "segments/00000001-00000003.seg, offset 0")
	f := w.reader(sharedlog.ReaderOptions{Tags: worldTags[:1]})
	p := f.r.order[0]
	var pauses []time.Duration
	w.log.reading.pause = func(d time.Duration, f func()) {
		pauses = append(pauses, d)
		w.later = append(w.later, f)
	}
	damaged := func() {
		for {
			s := w.log.reading.at[p.id].session
			if s.addr != "n1" {
				s.broken() // the node does not answer
				continue
			}
			s.failed(p.id, p, corrupt)
			w.resume()
			return
		}
	}
	for range 50 {
		damaged()
		_, err := f.r.TryNext()
		require.NoError(t, err, "the others may come back")
	}
	require.Equal(t, damagedRetry, pauses[len(pauses)-1], "the damaged one is not read without end")
	w.now = w.now.Add(damagedFor - time.Second)
	damaged()
	w.rest([]*follower{f}) // the other nodes are back
	require.EqualValues(t, 2, f.pos)

	w.cut(record{shard: 1, tags: worldTags[:1]})
	damaged()
	w.now = w.now.Add(damagedFor - time.Second)
	damaged()
	_, err := f.r.TryNext()
	require.NoError(t, err, "the time begins anew behind a record")
	w.now = w.now.Add(time.Second)
	damaged()
	_, err = f.r.TryNext()
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	for _, part := range []string{"node n1, shard 1: ", "00000001-00000003.seg", "start those that are away (n2, n3)"} {
		require.ErrorContains(t, err, strings.TrimSpace(part))
	}
}

// A node that is cut off from the sequencers, but not from the client, does not know that its shard
// is sealed, and no other node replaces it. A cursor there moves to another replica when it has
// received nothing for a while, and finishes on one that knows of the seal. If none does, the
// client logs a warning, again and again.
func TestCursorOnANodeThatStands(t *testing.T) {
	w := newWorld(t)
	var said bytes.Buffer
	w.log.opt.Logger = slog.New(slog.NewTextHandler(&said, nil))
	w.open()
	w.cut(record{shard: 1, tags: worldTags[:1]})
	w.follow(0, uint64(len(w.metalog)), true)
	f := w.reader(sharedlog.ReaderOptions{Tags: worldTags[:1]})
	p, known := f.r.order[0], uint64(len(w.metalog))
	g := &w.log.reading
	at := func() string { return g.at[p.id].session.addr }
	first := at()
	for _, n := range w.nodes {
		n.applied, n.held = known, known
	}
	after := func(d time.Duration) {
		w.now = w.now.Add(d)
		for _, n := range w.nodes {
			n.exchange(10)
		}
		g.leaveStanding()
		f.next()
	}
	for range 100 {
		after(standsFor)
	}
	require.Equal(t, first, at(), "an open shard may have nothing more")
	require.EqualValues(t, 2, f.pos)

	w.cut(record{shard: 1, tags: worldTags[:1]})
	w.seal(1)
	w.follow(known, uint64(len(w.metalog)), false)
	after(0)
	after(standsFor - 1)
	require.Equal(t, first, at())
	after(1)
	seen := map[string]bool{first: true, at(): true}
	require.Len(t, seen, 2, "it has moved")
	for range 3 * 60 {
		after(standsFor)
		seen[at()] = true
	}
	require.Len(t, seen, len(w.names))
	require.Less(t, g.at[p.id].try, 40, "the longer it lasts the less often it moves")
	require.Contains(t, said.String(), "a reader waits: no replica of its shard")
	require.InDelta(t, 7, strings.Count(said.String(), "a reader waits"), 1) // after 2, 4, 8 … 128 s

	said.Reset()
	for _, n := range w.nodes {
		if n.addr != first {
			n.applied, n.held = uint64(len(w.metalog)), uint64(len(w.metalog))
		}
	}
	for range 2 * len(w.names) {
		after(longestStand)
	}
	require.EqualValues(t, 3, f.pos, "%s knows nothing, and the others do", first)
	require.Empty(t, f.r.order)
}

// The same on an open shard, to which the others append without the node that is cut off: the cursor
// moves when the log's tail, of which the client knows otherwise, has been above it for a while.
func TestCursorOnANodeThatStandsOnAnOpenShard(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.cut(record{shard: 1, tags: worldTags[:1]})
	w.follow(0, uint64(len(w.metalog)), true)
	f := w.reader(sharedlog.ReaderOptions{Tags: worldTags[:1]})
	p, known := f.r.order[0], uint64(len(w.metalog))
	g := &w.log.reading
	at := func() string { return g.at[p.id].session.addr }
	first := at()
	for _, n := range w.nodes {
		n.applied, n.held = known, known
	}
	idle := false
	after := func(d time.Duration) {
		w.now = w.now.Add(d)
		for _, n := range w.nodes {
			n.exchange(10)
		}
		idle = g.leaveStanding()
		f.next()
	}
	after(time.Hour) // the first instant is no time
	after(0)
	require.EqualValues(t, 2, f.pos)
	require.False(t, idle)
	after(standsFor)
	require.True(t, idle, "the tail is worth a question")

	w.cut(record{shard: 1, tags: worldTags[:1]})
	for _, n := range w.nodes {
		if n.addr != first {
			n.applied, n.held = uint64(len(w.metalog)), uint64(len(w.metalog))
		}
	}
	for range 10 {
		after(standsFor)
	}
	require.Equal(t, first, at(), "nothing more is known")
	w.log.sawTail(3)
	after(0)
	require.False(t, idle)
	after(standsFor - 1)
	require.Equal(t, first, at())
	after(1)
	require.NotEqual(t, first, at(), "it has moved")
	after(standsFor)
	after(standsFor)
	require.EqualValues(t, 3, f.pos)
}

// A sealed shard is moved off a node that is cut off from the sequencers, but not from the client:
// a cursor there moves to a present replica of the shard.
func TestCursorOnANodeThatWasReplaced(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.cut(record{shard: 1, tags: worldTags[:1]})
	w.follow(0, uint64(len(w.metalog)), true)
	f := w.reader(sharedlog.ReaderOptions{Tags: worldTags[:1]})
	p, known := f.r.order[0], uint64(len(w.metalog))
	was := w.log.reading.at[p.id].session.addr
	w.seal(1)
	w.follow(known, uint64(len(w.metalog)), false)
	w.log.reading.leaveReplaced()
	require.Equal(t, was, w.log.reading.at[p.id].session.addr, "it has a replica")

	sh := proto.CloneOf(w.log.shards.get(1))
	sh.Addrs = slices.DeleteFunc(sh.Addrs, func(addr string) bool { return addr == was })
	require.NotEmpty(t, sh.GetAddrs())
	w.log.shards.take(&logpb.FollowReply{Index: known + 2, Events: []*logpb.Event{{Index: known + 2, What: &logpb.Event_Placed{Placed: sh}}}})
	w.log.reading.leaveReplaced()
	require.Contains(t, sh.GetAddrs(), w.log.reading.at[p.id].session.addr)
	w.rest([]*follower{f})
	require.EqualValues(t, 2, f.pos)
}
