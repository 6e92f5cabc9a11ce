package host_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/porttest"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
	"tailrace.dev/tailrace/sharedlog/logtest"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// local is a cluster whose roles run in this process, with real sockets and disks.
type local struct {
	t          testing.TB
	tls        transport.TLS
	dir        string
	sequencers []string
	storage    []string
	shardBytes int64                 // of the sequencers; 0: the default
	settings   func(*host.Sequencer) // more settings of the sequencers; nil: none
	zone       func(i int) string    // of a node; nil: none
	clientTags int                   // of the nodes; 0: the default
	disk       func(i int) vfs.FS    // of a node; nil: the real one

	fsyncInterval time.Duration // of the nodes; 0: the default

	mu      sync.Mutex
	running map[string]func()
}

func newLocal(t testing.TB, sequencers, storage int) *local {
	return newLocalWith(t, sequencers, storage, transport.TLS{})
}

func newLocalWith(t testing.TB, sequencers, storage int, tls transport.TLS) *local {
	return newLocalAs(t, sequencers, storage, func(c *local) { c.tls = tls })
}

// start starts all roles.
func (c *local) start() {
	for i := range c.sequencers {
		c.sequencer(i)
	}
	for i := range c.storage {
		c.node(i)
	}
	c.t.Cleanup(c.stop)
}

// newLocalAs is newLocal with settings made by f.
func newLocalAs(t testing.TB, sequencers, storage int, f func(c *local)) *local {
	addrs := porttest.Hold(t, sequencers+storage)
	c := &local{t: t, dir: t.TempDir(), sequencers: addrs[:sequencers], storage: addrs[sequencers:], running: map[string]func(){}}
	f(c)
	c.start()
	return c
}

func (c *local) run(name string, f func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[name] = func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Errorf("%s: %v", name, err)
		}
	}
}

// end stops a role and waits for it.
func (c *local) end(name string) {
	c.mu.Lock()
	f := c.running[name]
	delete(c.running, name)
	c.mu.Unlock()
	if f != nil {
		f()
	}
}

func (c *local) stop() {
	for i := range c.storage {
		c.end(fmt.Sprint("storage", i))
	}
	for i := range c.sequencers {
		c.end(fmt.Sprint("sequencer", i))
	}
}

func (c *local) common(addr string) host.Common {
	return host.Common{Listen: addr, Cluster: "test", TLS: c.tls, Logger: quiet}
}

func (c *local) sequencer(i int) {
	peers := map[uint64]string{}
	for j, addr := range c.sequencers {
		peers[uint64(j+1)] = addr
	}
	name := fmt.Sprint("sequencer", i)
	s := host.Sequencer{Common: c.common(c.sequencers[i]), ID: uint64(i + 1), Peers: peers, Bootstrap: true, Dir: filepath.Join(c.dir, name), Tick: tick, Replicas: min(3, len(c.storage)), ShardBytes: c.shardBytes}
	if c.settings != nil {
		c.settings(&s)
	}
	c.run(name, s.Run)
}

func (c *local) node(i int) {
	if c.disk != nil {
		c.nodeOn(i, c.disk(i))
		return
	}
	c.nodeOn(i, nil)
}

// nodeOn starts a node on another file system.
func (c *local) nodeOn(i int, fsys vfs.FS) {
	name := fmt.Sprint("storage", i)
	s := host.Storage{FS: fsys, Common: c.common(c.storage[i]), Sequencers: c.sequencers, Dir: filepath.Join(c.dir, name), SegmentBytes: 16 << 10, Memory: 1 << 20, FsyncInterval: c.fsyncInterval, ClientTags: c.clientTags}
	if c.zone != nil {
		s.Zone = c.zone(i)
	}
	c.run(name, s.Run)
}

// open opens the cluster's log; it is usable when open returns.
func (c *local) open(t testing.TB) sharedlog.Log {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	l, closeLog, err := host.OpenLog(ctx, transport.Options{Cluster: "test"}, client.Options{Sequencers: c.sequencers, Logger: quiet})
	require.NoError(t, err)
	return &opened{l, closeLog}
}

type opened struct {
	sharedlog.Log
	close func() error
}

func (o *opened) Close() error { return o.close() }

// Random histories get the same answers as from the twin.
func TestRandomHistories(t *testing.T) {
	require.NoError(t, flag.Set("rapid.checks", "12"))
	require.NoError(t, flag.Set("rapid.steps", "25"))
	clusters := map[sharedlog.Log]*local{}
	logtest.RunRandom(t, logtest.Factory{
		Seals: true,
		Open: func(t testing.TB) sharedlog.Log {
			for l, c := range clusters { // only the newest is used
				c.stop()
				delete(clusters, l)
			}
			c := newLocal(t, 1, 2)
			l := c.open(t)
			clusters[l] = c
			return l
		},
		Reopen: func(t testing.TB, log sharedlog.Log) sharedlog.Log {
			c := clusters[log]
			require.NoError(t, log.Close())
			c.end("storage1")
			c.node(1)
			l := c.open(t)
			clusters[l] = c
			return l
		},
	})
}

// The log of a cluster keeps the same promises as the twin and the embedded log. To reopen it means
// to restart every storage node and the client.
func TestConformance(t *testing.T) {
	clusters := map[sharedlog.Log]*local{}
	logtest.Run(t, logtest.Factory{
		Seals: true,
		Open: func(t testing.TB) sharedlog.Log {
			c := newLocal(t, 3, 3)
			l := c.open(t)
			clusters[l] = c
			return l
		},
		Reopen: func(t testing.TB, log sharedlog.Log) sharedlog.Log {
			c := clusters[log]
			require.NoError(t, log.Close())
			for i := range c.storage {
				c.end(fmt.Sprint("storage", i))
			}
			for i := range c.storage {
				c.node(i)
			}
			l := c.open(t)
			clusters[l] = c
			return l
		},
	})
}

// A group is sent again when the shard that took it is sealed: its outcome is unknown, which does
// not mean that it is not in the log.
func TestAgainBehindTheSeal(t *testing.T) {
	c := newLocal(t, 1, 1)
	l := c.open(t)
	defer l.Close()
	send := func(writer string, n uint64) error {
		g := sharedlog.Group{Writer: writer, Number: n, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}}}}
		_, err := l.Append(g).Wait(t.Context())
		return err
	}
	require.NoError(t, send("a", 1))
	c.end("storage0")
	c.node(0)
	require.NoError(t, send("b", 1), "at the new home: the client knows of the seal")
	require.Equal(t, sharedlog.KindUnknown, sharedlog.KindOf(send("a", 1)))
	require.NoError(t, send("a", 2))
	require.Equal(t, sharedlog.KindUnknown, sharedlog.KindOf(send("a", 1)))
}
