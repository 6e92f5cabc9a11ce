package server

import (
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

const self = "127.0.0.1:1" // of a node that is never called

// serve runs a sequencer with the given streams.
func serve(t testing.TB, handlers map[string]transport.Handler) (addr string) {
	srv, err := transport.NewServer(transport.Options{})
	require.NoError(t, err)
	for name, h := range handlers {
		srv.Handle(name, h)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Stop()
		require.NoError(t, <-served)
	})
	return ln.Addr().String()
}

// start runs a node on a file system; it follows the sequencer at an address.
func start(t *testing.T, fsys vfs.FS, sequencer string) *Node {
	return startLogging(t, fsys, sequencer, quiet)
}

func startLogging(t *testing.T, fsys vfs.FS, sequencer string, logger *slog.Logger) *Node {
	d, err := transport.NewDialer(transport.Options{})
	require.NoError(t, err)
	n, err := Start(Options{Addr: self, Sequencers: []string{sequencer}, FS: fsys, Dir: "d", Dialer: d, Logger: logger})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, n.Close())
		require.NoError(t, d.Close())
	})
	return n
}

// A node reports to the leader only after it has received the metalog: otherwise a shard could be
// opened on it whose start it has missed.
func TestFollowsBeforeItReports(t *testing.T) {
	var follows, spoke atomic.Int64
	early := make(chan int64, 1)
	addr := serve(t, map[string]transport.Handler{
		"sequencer/follow": func(st transport.Stream) error {
			if follows.Add(1) == 1 {
				<-st.Context().Done() // silence: the node leaves and reconnects
				early <- spoke.Load()
				return nil
			}
			if err := st.Send(&logpb.FollowReply{Snapshot: &logpb.Snapshot{Tail: uint64(sharedlog.First)}, Tail: uint64(sharedlog.First)}); err != nil {
				return err
			}
			<-st.Context().Done()
			return nil
		},
		"sequencer/node": func(st transport.Stream) error {
			spoke.Add(1)
			<-st.Context().Done()
			return nil
		},
	})
	start(t, vfs.NewMem(), addr)
	require.Zero(t, <-early, "nothing of the metalog has been received yet")
	require.Eventually(t, func() bool { return spoke.Load() > 0 }, time.Minute, time.Millisecond)
}

// A node that learns from a snapshot of a shard that has just been opened on it takes part: while
// nothing of the shard is ordered it has missed nothing. It is primary of its own shards, not of
// those of an earlier process at its address (pitfall L1).
func TestBeginsFromASnapshot(t *testing.T) {
	n := start(t, vfs.NewMem(), self)
	require.NoError(t, n.restart(&logpb.Snapshot{
		Index: 7, Tail: 5, Metadata: []*logpb.Pair{{Key: "k", Value: []byte("v")}},
		Shards: []*logpb.Shard{
			{Id: 1, Addrs: []string{self, "b"}, Incarnation: n.incarnation, Opened: 5},
			{Id: 2, Addrs: []string{"b", self}, Incarnation: 1, Opened: 5},
			{Id: 3, Addrs: []string{"b", self}, Incarnation: 1, Opened: 1, Length: 4},
			{Id: 4, Addrs: []string{self, "b"}, Incarnation: n.incarnation + 1, Opened: 5},
		},
	}))
	for id, want := range map[uint32]storage.Phase{1: storage.PhaseOpen, 2: storage.PhaseOpen, 3: storage.PhaseStale, 4: storage.PhaseOpen} {
		r := n.replica(id)
		require.NotNil(t, r)
		r.mu.Lock()
		phase := r.phase
		r.mu.Unlock()
		require.Equal(t, want, phase, "shard %d", id)
		require.Equal(t, id == 1, r.primary, "shard %d", id)
	}
}

// A shard was opened for an earlier process at the address: the current one has a replica of it and
// is not its primary (L1).
func TestShardOfThePredecessor(t *testing.T) {
	c := newCluster(t, 2, nil)
	m := c.members[0]
	c.until(func() bool { return c.last(m.addr) != nil })
	before := m.node.incarnation
	m.end()
	ef := c.propose(sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: before, Addrs: c.addrs([]int{0, 1})})
	id := uint32(ef.Shard)
	m.start()
	require.NotEqual(t, before, m.node.incarnation)
	for _, m := range c.members {
		c.until(func() bool { return m.status(id).GetRole() != "" })
		require.Equal(t, "backup", m.status(id).GetRole())
	}
	w := c.writer("w", id, 0)
	w.send([]byte("a"), "x")
	var answer transport.Raw
	require.ErrorIs(t, w.st.Recv(&answer), sharedlog.ErrClosed)
	c.seal(id)
	c.full(id, 0, 1)
}
