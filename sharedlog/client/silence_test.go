package client

import (
	"bytes"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
)

// A stream ends when nothing comes over it, but not while the bytes of a message do, however long the
// message takes. A few bytes, such as those of answers to others, are not the bytes of a message.
func TestSilence(t *testing.T) {
	const patience = 50 * time.Millisecond
	for _, c := range []struct {
		name  string
		each  int64 // bytes, each patience
		times int   // how often they come
		ends  time.Duration
	}{
		{"nothing comes", 0, 0, time.Second},
		{"a message is on its way", flow, 100, time.Second + 100*patience},
		{"little comes", flow - 1, 100, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var bytes atomic.Int64
				ended := make(chan time.Duration, 1)
				begin := time.Now()
				s := newSilence(time.Second, patience, bytes.Load, func() { ended <- time.Since(begin) })
				defer s.stop()
				time.Sleep(time.Second - time.Millisecond)
				for range c.times {
					bytes.Add(c.each)
					time.Sleep(patience)
				}
				require.Equal(t, c.ends, <-ended)
			})
		})
	}
}

// Messages put the end off, and what came with one does not count for the silence after it.
func TestSilenceAfterMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 50 * time.Millisecond
		var bytes atomic.Int64
		ended := make(chan struct{})
		s := newSilence(time.Second, patience, bytes.Load, func() { close(ended) })
		defer s.stop()
		for range 100 {
			time.Sleep(patience - time.Millisecond)
			bytes.Add(10 * flow)
			s.received()
		}
		last := time.Now()
		<-ended
		require.Equal(t, patience, time.Since(last))
	})
}

// slowStream is a stream that has received some bytes.
type slowStream struct {
	transport.ClientStream
	bytes int64
}

func (s *slowStream) Received() int64 { return s.bytes }

// A cursor whose records are on their way over a slow link does not move after standsFor, which would
// have them sent again, but it does some time. There is one warning a shard, however many readers wait.
func TestCursorOnASlowLink(t *testing.T) {
	w := newWorld(t)
	var said bytes.Buffer
	w.log.opt.Logger = slog.New(slog.NewTextHandler(&said, nil))
	begin := time.Unix(1000, 0)
	w.now = begin
	w.open()
	w.cut(record{shard: 1, tags: worldTags[:1]})
	w.follow(0, uint64(len(w.metalog)), true)
	f, second := w.reader(sharedlog.ReaderOptions{Tags: worldTags[:1]}), w.reader(sharedlog.ReaderOptions{Tags: worldTags[:1]})
	p, known := f.r.order[0], uint64(len(w.metalog))
	g := &w.log.reading
	for _, n := range w.nodes {
		n.applied, n.held = known, known
		n.exchange(10)
	}
	f.next()
	second.next()
	w.cut(record{shard: 1, tags: worldTags[:1]})
	w.follow(known, uint64(len(w.metalog)), false)
	w.log.tail.Store(uint64(w.last().tail))
	at := func() string { return g.at[p.id].session.addr }
	first := at()
	st := &slowStream{}
	var open transport.ClientStream = st
	for _, s := range g.sessions {
		s.open.Store(&open)
	}
	g.leaveStanding()
	for range int(slowLink*standsFor/time.Second) - 1 {
		w.now = w.now.Add(time.Second)
		st.bytes += flow
		g.leaveStanding()
		require.Equal(t, first, at(), "the records are on their way")
	}
	w.now = w.now.Add(time.Second)
	g.leaveStanding()
	require.NotEqual(t, first, at(), "the node may be cut off")
	require.NotContains(t, said.String(), "a reader waits")
	for w.now.Sub(begin) < slowLink*resolvePatience {
		require.Zero(t, said.Len())
		w.now = w.now.Add(time.Second)
		st.bytes += flow
		g.leaveStanding()
	}
	require.Regexp(t, `^[^\n]*a reader waits: [^\n]* shard=1 [^\n]* slow_link=true [^\n]*\n$`, said.String())
}
