package server

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
)

// lazy is a client's end of an append stream. It receives only when the test calls it.
type lazy struct {
	hello    *logpb.AppendHello
	greeted  bool
	messages chan []byte // sent by the client; closed: it has ended the stream
	receives chan []byte
	ctx      context.Context
}

func newLazy(t *testing.T, hello *logpb.AppendHello) *lazy {
	return &lazy{hello: hello, messages: make(chan []byte), receives: make(chan []byte), ctx: t.Context()}
}

func (l *lazy) Context() context.Context { return l.ctx }

func (l *lazy) Send(m any) error {
	select {
	case l.receives <- slices.Concat(m.(*transport.Raw).Parts...):
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

func (l *lazy) Recv(m any) error {
	if !l.greeted {
		l.greeted = true
		h := m.(*logpb.AppendHello)
		h.Shard, h.Client, h.Id, h.Epoch = l.hello.GetShard(), l.hello.GetClient(), l.hello.GetId(), l.hello.GetEpoch()
		return nil
	}
	b, ok := <-l.messages
	if !ok {
		return io.EOF
	}
	m.(*transport.Raw).Bytes = b
	return nil
}

// group returns a message with one group.
func group(writer string, number uint64) []byte {
	var w wire.Body
	w.Encode(&sharedlog.Group{Writer: writer, Number: number, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: []byte("d")}}}, number == 1)
	return submission(number, &w)
}

// submission returns a message with one group.
func submission(number uint64, w *wire.Body) []byte {
	b := wire.AppendSubmission(nil, number, w.CRC, w.Head, len(w.Bytes)-w.Head, w.Records)
	return append(b, w.Bytes...)
}

// answersIn decodes a message with answers.
func answersIn(t testing.TB, b []byte) (all []wire.Answer) {
	t.Helper()
	for len(b) > 0 {
		var a wire.Answer
		var err error
		b, err = a.Take(b)
		require.NoError(t, err)
		all = append(all, a)
	}
	return all
}

// A client that appends and does not receive its answers blocks no other client.
func TestAClientThatDoesNotReceive(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	stopped := newLazy(t, &logpb.AppendHello{Shard: id, Client: "stopped", Id: 1, Epoch: 1})
	ended := make(chan error, 1)
	go func() { ended <- c.members[0].node.serveAppend(stopped) }()
	stopped.messages <- group("stopped", 1)
	c.until(func() bool { return c.tail() == 2 })
	require.Len(t, c.writer("other", id, 0).append(20, "x"), 20)
	stopped.messages <- group("stopped", 2)
	require.Len(t, c.writer("another", id, 0).append(20, "x"), 20)
	for n := 2; n > 0; {
		for _, a := range answersIn(t, <-stopped.receives) {
			require.NoError(t, a.Err)
			n--
		}
	}
	close(stopped.messages) // not before: a node may drop the answers to a client that has ended
	require.NoError(t, <-ended)
}

// Groups that a client has sent on a broken stream are dropped once it has a new stream: there it
// may have been told that the group is certainly not in the log.
func TestABrokenStreamIsLeft(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	n := c.members[0].node
	open := func(client, epoch uint64) (*lazy, chan error) {
		st, ended := newLazy(t, &logpb.AppendHello{Shard: id, Id: client, Epoch: epoch}), make(chan error, 1)
		go func() { ended <- n.serveAppend(st) }()
		return st, ended
	}
	old, oldEnded := open(7, 1)
	old.messages <- group("w", 1)
	<-old.receives
	other, otherEnded := open(8, 1)
	again, againEnded := open(7, 2)
	again.messages <- group("w", 2)
	<-again.receives
	old.messages <- group("w", 3) // it was in flight
	old.messages <- group("late", 1)
	close(old.messages)
	require.NoError(t, <-oldEnded)
	other.messages <- group("other", 1)
	<-other.receives
	require.EqualValues(t, 4, c.tail(), "w 1, w 2, other 1")
	again.messages <- group("w", 3)
	<-again.receives
	close(again.messages)
	close(other.messages)
	require.NoError(t, <-againEnded)
	require.NoError(t, <-otherEnded)
	require.EqualValues(t, 5, c.tail())
	c.until(func() bool {
		left := -1
		c.members[0].replica(id).ask(func(l *loop) { left = len(l.streams) })
		return left == 0
	})
}

// A length that a backup reported on an earlier stream does not count once it has a new stream: the
// backup may have lost the data in between (pitfall L8).
func TestAnOldAcknowledgement(t *testing.T) {
	c := newCluster(t, 3, nil)
	id := c.open(0, 1, 2)
	w := c.writer("w", id, 0)
	w.append(3, "x")
	r := c.members[0].replica(id)
	acked := func() (stream uint64) {
		r.ask(func(l *loop) { stream = l.backups[0].acked })
		return stream
	}
	c.until(func() bool { return acked() > 0 }) // the other backup suffices for the appends
	old := acked()
	c.members[1].restart() // a new stream
	c.members[2].restart()
	w.append(3, "x")
	c.until(func() bool { return acked() > old })
	c.members[1].end()
	c.members[2].end()
	w.send([]byte("held by one"), "x")
	c.until(func() bool { return r.onDisk() == 7 })
	r.put(item{ack: &ack{backup: r.guarded.backups[0], stream: old, length: 7}})
	require.Never(t, func() bool { return c.tail() > 7 }, 200*time.Millisecond, 5*time.Millisecond)
	c.members[1].start()
	c.until(func() bool { return c.tail() == 8 })
}

// A backup that is further behind than the primary's backlog gets the groups from disk. Segments
// that end below what it holds are not read for that.
func TestCatchUpReadsWhatIsMissing(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) { o.Memory = 64 << 10 })
	id := c.open(0, 1, 2)
	w := c.writer("w", id, 0)
	w.append(40, "x")
	primary, m := c.members[0], c.members[2]
	held := func() uint64 { return m.replica(id).onDisk() }
	c.until(func() bool { return held() == 40 })
	below := func() (n int) {
		for _, info := range primary.replica(id).disk.Segments() {
			if to := info.Extent.To; to > 0 && to <= 40 {
				n++
			}
		}
		return n
	}
	c.until(func() bool { return below() >= 4 })
	m.end()
	w.append(40, "x")
	var read sync.Map // by file
	primary.fail(func(op vfs.Op) error {
		if op.Kind == vfs.OpRead {
			read.Store(op.Path, true)
		}
		return nil
	})
	m.start()
	c.until(func() bool { return held() == 80 })
	files := 0
	read.Range(func(any, any) bool { files++; return true })
	require.LessOrEqual(t, files, len(primary.ids(id))-below())
}
