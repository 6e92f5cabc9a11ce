package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/sim/fakedisk"
	"tailrace.dev/tailrace/internal/sim/fakenet"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sequencer/controller"
	sequencers "tailrace.dev/tailrace/sequencer/server"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
	nodes "tailrace.dev/tailrace/storage/server"
)

const (
	cluster  = "sim"
	replicas = 3 // of each shard
	// raftTick is the default of a sequencer, by its own clock.
	raftTick = 20 * time.Millisecond
)

// machine is a machine with one process on it, which starts and ends repeatedly.
type machine struct {
	w    *World
	name string
	disk *fakedisk.Disk
	// begin starts the process: a server on this host and disk.
	begin func(h *fakenet.Host, fs *fakedisk.Handle) (server, error)

	mu      sync.Mutex
	host    *fakenet.Host
	fs      *fakedisk.Handle
	server  server // nil: it does not run
	down    bool   // it must not be started
	gone    bool   // permanently
	gen     int    // counts starts and ends
	lost    bool   // its disk has lost something since it was new
	damaged bool   // a bit of its disk was flipped
	why     error  // why it does not start
	reaping sync.WaitGroup
}

// server is the process on a machine.
type server interface {
	Register(transport.Handlers)
	Done() <-chan struct{}
	Err() error
	Close() error
}

// start starts the process and keeps it running like a supervisor: if it ends by itself, or fails
// to start, it is started again.
func (m *machine) start() {
	m.mu.Lock()
	if m.gone || m.server != nil || m.host != nil {
		m.mu.Unlock()
		return
	}
	m.down = false
	m.gen++
	gen := m.gen
	m.host = m.w.net.Start(m.name, transport.Options{Cluster: cluster})
	m.fs = m.disk.Open()
	host, fs := m.host, m.fs
	m.mu.Unlock()
	m.reaping.Go(func() { m.run(gen, host, fs) })
}

func (m *machine) run(gen int, host *fakenet.Host, fs *fakedisk.Handle) {
	s, err := m.begin(host, fs)
	m.mu.Lock()
	current := m.gen == gen
	if current && err == nil {
		m.server = s
	}
	m.why = err
	m.mu.Unlock()
	if err == nil {
		srv := host.Server()
		s.Register(srv)
		var served sync.WaitGroup
		served.Go(func() { _ = srv.Serve(nil) }) // ends with the host
		if !current {
			host.Kill(false)
		}
		<-s.Done()
		host.Kill(false)
		srv.Stop()
		served.Wait()
		err = s.Close()
	}
	m.mu.Lock()
	current = m.gen == gen
	if !current { // it was killed; its error does not count
		m.mu.Unlock()
		return
	}
	m.server, m.host, m.fs, m.why = nil, nil, nil, err
	m.gen++
	again := !m.down && !m.gone
	m.mu.Unlock()
	host.Kill(false)
	fs.Kill()
	m.w.story.printf(m.name, "the process has ended: %v", err)
	m.w.ended(m, err)
	if again {
		m.w.after(time.Second, func() { m.restart() })
	}
}

func (m *machine) restart() {
	m.mu.Lock()
	down := m.down || m.gone
	m.mu.Unlock()
	if !down {
		m.start()
	}
}

// kill kills the process, which stays down until start. silent: the others get no reset.
func (m *machine) kill(silent bool) {
	m.mu.Lock()
	m.down = true
	m.gen++
	host, fs, s := m.host, m.fs, m.server
	m.host, m.fs, m.server = nil, nil, nil
	m.mu.Unlock()
	if host == nil {
		return
	}
	fs.Kill()
	host.Kill(silent)
	if s != nil {
		// The remaining goroutines end by themselves; they have no effect any more.
		m.reaping.Go(func() { _ = s.Close() })
	}
}

// newDisk returns the disk of a machine.
func (w *World) newDisk(name string) *fakedisk.Disk {
	s := &w.plan.Settings
	return fakedisk.New(fakedisk.Settings{
		Rand: w.rand("disk " + name), Write: time.Duration(s.DiskWriteUs) * time.Microsecond, Sync: time.Duration(s.DiskSyncUs) * time.Microsecond,
	})
}

// controller returns a leader's settings, converted by its own clock.
func (s *Settings) controller(local func(time.Duration) time.Duration) controller.Settings {
	ms := func(n int64) int64 { return local(ms(int(n))).Milliseconds() }
	return controller.Settings{
		Replicas: replicas, PerNode: s.PerNode, ShardBytes: uint64(s.ShardBytes), Copying: s.Copying,
		Grace: ms(s.GraceMs), Silence: ms(s.SilenceMs), Stale: ms(s.StaleMs), Stuck: ms(s.StuckMs), Away: ms(s.AwayMs), Distrust: ms(s.DistrustMs), Handover: ms(500),
	}
}

func (w *World) newSequencer(i int) *machine {
	name := sequencerName(i)
	m := &machine{w: w, name: name, disk: w.newDisk(name)}
	peers := map[uint64]string{}
	for j := range w.plan.Settings.Sequencers {
		peers[uint64(j+1)] = sequencerName(j)
	}
	set := &w.plan.Settings
	m.begin = func(h *fakenet.Host, fs *fakedisk.Handle) (server, error) {
		local := w.local(name)
		return sequencers.Start(sequencers.Options{
			ID: uint64(i + 1), Peers: peers, Bootstrap: true, FS: fs, Dir: "data", Dialer: h.Dialer(),
			Controller: set.controller(local), Tick: local(raftTick), ForgetAfter: local(ms(set.ForgetMs)),
			Fsync: set.SequencerFsync, HistoryEvents: set.HistoryEvents, HistoryBytes: set.HistoryBytes, FollowEvents: set.FollowEvents, SnapshotBytes: set.SnapshotBytes,
			Cluster: cluster, Logger: w.story.logger(name),
		})
	}
	return m
}

func (w *World) newNode(i int) *machine {
	name := nodeName(i)
	m := &machine{w: w, name: name, disk: w.newDisk(name)}
	set := &w.plan.Settings
	var addrs []string
	for j := range set.Sequencers {
		addrs = append(addrs, sequencerName(j))
	}
	m.begin = func(h *fakenet.Host, fs *fakedisk.Handle) (server, error) {
		local := w.local(name)
		return nodes.Start(nodes.Options{
			Addr: name, Sequencers: addrs, FS: fs, Dir: "data", Dialer: h.Dialer(),
			Fsync: set.Fsync, FsyncInterval: local(ms(set.FsyncMs)), SegmentBytes: set.SegmentBytes, Memory: set.Memory,
			CheckpointInterval: local(ms(set.CheckpointMs)), Cluster: cluster, Logger: w.story.logger(name),
		})
	}
	return m
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// user is a client process with a log that is opened and closed repeatedly.
type user struct {
	w    *World
	name string

	mu     sync.Mutex
	log    sharedlog.Log // nil: none at present
	host   *fakenet.Host
	gen    int
	ctx    context.Context // ends with this process
	cancel context.CancelFunc
	news   chan struct{} // closed when log changes
	wg     sync.WaitGroup
}

func (w *World) newUser(name string) *user {
	return &user{w: w, name: name, news: make(chan struct{})}
}

func (u *user) signal() {
	close(u.news)
	u.news = make(chan struct{})
}

// start starts the process.
func (u *user) start() {
	u.mu.Lock()
	if u.host != nil {
		u.mu.Unlock()
		return
	}
	u.gen++
	gen := u.gen
	u.host = u.w.net.Start(u.name, transport.Options{Cluster: cluster})
	u.ctx, u.cancel = context.WithCancel(context.Background())
	host, ctx := u.host, u.ctx
	u.mu.Unlock()
	u.wg.Go(func() {
		var addrs []string
		for j := range u.w.plan.Settings.Sequencers {
			addrs = append(addrs, sequencerName(j))
		}
		l, err := client.Connect(ctx, client.Options{
			Sequencers: addrs, Dialer: host.Dialer(), Name: u.name, QueueBytes: u.w.plan.Settings.QueueBytes,
			Silence: u.w.local(u.name)(ms(u.w.plan.Settings.ClientSilenceMs)), Logger: u.w.story.logger(u.name),
		})
		u.mu.Lock()
		defer u.mu.Unlock()
		switch {
		case err != nil && u.gen == gen:
			u.w.fail("liveness", "the log at %s does not open: %v", u.name, err)
		case err != nil:
		case u.gen != gen:
			u.wg.Go(func() { _ = l.Close() })
		default:
			u.log = l
			u.signal()
		}
	})
}

// kill kills the process, or makes it close its log.
func (u *user) kill(inOrder bool) {
	u.mu.Lock()
	host, l, cancel := u.host, u.log, u.cancel
	u.host, u.log = nil, nil
	u.gen++
	u.signal()
	u.mu.Unlock()
	if host == nil {
		return
	}
	if !inOrder {
		host.Kill(false)
	}
	cancel()
	if l != nil {
		u.wg.Go(func() {
			_ = l.Close()
			host.Kill(false)
		})
	} else {
		host.Kill(false)
	}
}

// get waits for a log; nil: ctx has ended. The returned context ends with the process that has the
// log.
func (u *user) get(ctx context.Context) (sharedlog.Log, context.Context) {
	for {
		u.mu.Lock()
		l, c, news := u.log, u.ctx, u.news
		u.mu.Unlock()
		if l != nil {
			return l, c
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// rand returns a random source for a purpose. Each purpose has its own, so that removing a part of
// a plan changes nothing for the others.
func (w *World) rand(purpose string) *rand.Rand {
	h := uint64(14695981039346656037)
	for i := range len(purpose) {
		h = (h ^ uint64(purpose[i])) * 1099511628211
	}
	return rand.New(rand.NewPCG(w.plan.Seed, h))
}

// ended checks why a process has ended by itself.
func (w *World) ended(m *machine, err error) {
	m.mu.Lock()
	damaged := m.damaged || m.lost
	m.mu.Unlock()
	switch {
	case err == nil:
		w.fail("ends", "%s has ended by itself without a reason", m.name)
	case errors.Is(err, fakedisk.ErrKilled):
	case damaged, strings.Contains(err.Error(), "input/output error"), sharedlog.KindOf(err) == sharedlog.KindFull:
		w.story.count("a process ended for its disk")
	case w.plan.Settings.HistoryBytes != 0 && strings.Contains(err.Error(), "has followed the metalog to"):
		// The events that its open shard needs are gone: the shard is sealed, and the node restarts
		// without it.
		w.story.count("a process ended for lack of history")
	default:
		w.fail("ends", "%s has ended by itself: %v", m.name, err)
	}
}

func (m *machine) String() string { return fmt.Sprint(m.name) }
