package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sequencer/controller"
	"tailrace.dev/tailrace/sequencer/replica"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// Options configures a sequencer.
type Options struct {
	// ID is the ID of this sequencer, Addr the address at which others reach it (default: from
	// Peers).
	ID   uint64
	Addr string
	// Peers are the addresses of all sequencers that formed the cluster, by ID, including this one.
	// From feature level 2 on the directory's content takes precedence.
	Peers map[uint64]string
	// An empty directory is refused without Bootstrap or Join. With Bootstrap the sequencer forms a
	// cluster together with all of Peers. With Join, the addresses of sequencers of an existing
	// cluster, it waits to be added to that cluster.
	Bootstrap bool
	Join      []string
	FS        vfs.FS
	Dir       string
	// Dialer connects to peers and storage nodes.
	Dialer transport.Dialer
	// Controller says when a storage node is given up; the zero value means controller.Default.
	Controller controller.Settings
	// Quotas are applied by the leader, so they must be the same at all sequencers.
	Quotas Quotas
	// Tick is raft's clock: a leader sends a heartbeat every tick, and the others start an election
	// after ten to twenty ticks without one. Default 20 ms.
	Tick time.Duration
	// Fsync is "always" (default: an entry is on disk before it counts) or "interval" (an entry
	// counts when the operating system has it, and is on disk within 100 ms).
	Fsync string
	// HistoryEvents and HistoryMemory (bytes, approximate) bound the events that are kept in memory
	// for followers. Defaults 200 000 and 64 MiB.
	HistoryEvents int
	HistoryMemory int64
	// HistoryBytes is the size of the metalog on disk that is kept for followers that are further
	// behind. Default 1 GiB; negative: none.
	HistoryBytes int64
	// FollowEvents is the maximum number of events in a message to a follower. Default 4096.
	FollowEvents int
	// ForgetAfter is how long a sealed shard must have been empty before it is forgotten: in the
	// meantime disconnected writers can ask it for the outcomes of their appends. Default 5 min.
	ForgetAfter time.Duration
	// SnapshotBytes is the size of the log at which there is a new snapshot; default as in
	// replica.Options.
	SnapshotBytes int64
	Cluster       string
	Version       string
	Logger        *slog.Logger
}

// Server is a sequencer.
type Server struct {
	opt      Options
	lock     io.Closer // on the directory
	identity *identity
	me       *logpb.Identity        // the answer to others before it is a member
	waiting  atomic.Pointer[string] // what it waits for before it is a member
	began    atomic.Bool            // it is a member; the fields below are valid
	history  *history
	started  time.Time
	// quotaRefused counts what was refused because of Options.Quotas.
	quotaRefused atomic.Uint64

	mu     sync.Mutex
	queue  []func() // calls to make in the next turn
	closed bool
	wake   chan struct{}
	quit   chan struct{}
	done   chan struct{} // closed when the loop has ended
	err    error         // why it ended, nil after Close
	peerWG sync.WaitGroup
	jobs   sync.WaitGroup // jobs for the disk in progress
	led    atomic.Int64   // when this sequencer last knew a leader
	// leads is the current leader; replaced by another message when that changes.
	leads atomic.Pointer[logpb.Leader]
	// Number of open streams of storage nodes, and of clients.
	followers, clientFollowers atomic.Int64
	oldClients                 atomic.Int64    // clients that support only a lower level than this program
	ctx                        context.Context // ends with the server
	cancel                     context.CancelFunc

	// Protected by turnMu:
	turnMu      sync.Mutex
	replica     *replica.Replica
	peers       map[uint64]*peer
	known       map[uint64]*logpb.SequencerHello // the hellos of other sequencers
	lastMessage map[uint64]int64                 // time of their last messages
	adding      map[uint64]bool                  // a proposal about them is in progress
	commit      uint64                           // raft's commit index at the last look at the members
	leading     bool
	since       int64
	nodes       map[string]*node
	pending     []sequencer.Entry
	tidy        tidy
	decided     time.Time
	synced      time.Time
	cuts        uint64
}

// Start opens the sequencer's data and starts the sequencer. The caller registers its streams at a
// transport server (Register) and serves them.
func Start(o Options) (*Server, error) {
	if o.Tick == 0 {
		o.Tick = 20 * time.Millisecond
	}
	o.Quotas = o.Quotas.withDefaults()
	if o.FollowEvents == 0 {
		o.FollowEvents = 4096
	}
	if o.HistoryEvents == 0 {
		o.HistoryEvents = 200_000
	}
	if o.HistoryMemory == 0 {
		o.HistoryMemory = 64 << 20
	}
	if o.HistoryBytes == 0 {
		o.HistoryBytes = 1 << 30
	}
	if o.ForgetAfter == 0 {
		o.ForgetAfter = 5 * time.Minute
	}
	if o.Controller == (controller.Settings{}) {
		o.Controller = controller.Default
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Fsync != "" && o.Fsync != "always" && o.Fsync != "interval" {
		return nil, sharedlog.Errorf(sharedlog.KindInvalid, "fsync %q: use always or interval", o.Fsync)
	}
	if o.Addr == "" {
		o.Addr = o.Peers[o.ID]
	}
	if o.Addr == "" {
		return nil, sharedlog.Errorf(sharedlog.KindInvalid, "sequencer %d is not among the sequencers given, and has no address", o.ID)
	}
	if o.Bootstrap && o.Peers[o.ID] == "" {
		return nil, sharedlog.Errorf(sharedlog.KindInvalid, "sequencer %d is not among the sequencers with which the cluster is to begin", o.ID)
	}
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, err
	}
	lock, err := o.FS.Lock(filepath.Join(o.Dir, "LOCK"))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, sharedlog.Errorf(sharedlog.KindLocked, "%s is in use by another process; wait until it has ended (also if it is stopped), or use another directory", o.Dir)
	}
	if err != nil {
		return nil, err
	}
	s := &Server{
		opt: o, lock: lock, peers: map[uint64]*peer{}, nodes: map[string]*node{}, started: time.Now(),
		known: map[uint64]*logpb.SequencerHello{}, lastMessage: map[uint64]int64{}, adding: map[uint64]bool{},
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	log := false
	if s.identity, log, err = identify(&o); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.me = &logpb.Identity{
		Id: o.ID, StoreId: s.identity.store, Addr: o.Addr, Level: sequencer.Level,
		Joins: !o.Bootstrap, Peers: slices.Sorted(maps.Keys(o.Peers)),
	}
	if log {
		if err := s.begin(nil); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
	}
	go s.run()
	return s, nil
}

// Register registers the sequencer's streams at a transport server.
func (s *Server) Register(t transport.Handlers) {
	t.Handle("sequencer/raft", s.serveRaft)
	t.Handle("sequencer/node", s.serveNode)
	t.Handle("sequencer/follow", s.serveFollow)
	t.Handle("sequencer/propose", s.servePropose)
	t.Handle("sequencer/get", s.serveGet)
	t.Handle("sequencer/status", s.serveStatus)
	t.Handle("sequencer/identity", s.serveIdentity)
	t.Handle("sequencer/members", s.serveMembers)
	t.Handle("sequencer/level", s.serveLevel)
}

// Done returns a channel that is closed when the sequencer has stopped, by Close or because its
// disk failed (see Err).
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns why the sequencer stopped, nil if Close was called. It is valid after Done.
func (s *Server) Err() error { return s.err }

// Close stops the sequencer. Its streams end with the transport server.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.quit)
	}
	s.mu.Unlock()
	<-s.done
	s.peerWG.Wait()
	s.jobs.Wait()
	return s.err
}

// syncEvery is how long an entry may wait for a sync under fsync interval.
const syncEvery = 100 * time.Millisecond

var (
	errEnded    = errors.New("the sequencer has ended")
	errNotBegun = errors.New("this sequencer is not a member of the cluster yet")
)

func errRemoved(id uint64) error {
	return sharedlog.Errorf(sharedlog.KindInvalid, "sequencer %d was removed from the cluster; end it, its directory is of no use any more", id)
}

// do queues f for the loop. If it returns an error, f is not called.
func (s *Server) do(f func()) error {
	if !s.began.Load() {
		return errNotBegun
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errEnded
	}
	s.queue = append(s.queue, f)
	s.mu.Unlock()
	// If the loop is idle, the caller makes one turn itself, because waking the loop would take
	// longer than the turn. It makes only one, so that its own stream does not wait for the work of
	// all others.
	if s.turnMu.TryLock() {
		s.turn(false)
		s.turnMu.Unlock()
		s.mu.Lock()
		more := len(s.queue) > 0
		s.mu.Unlock()
		if !more {
			return nil
		}
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// ask is do, and waits until f has been called.
func (s *Server) ask(f func()) error {
	called := make(chan struct{})
	if err := s.do(func() { f(); close(called) }); err != nil {
		return err
	}
	select {
	case <-called:
		return nil
	case <-s.done:
		return errEnded
	}
}

func (s *Server) run() {
	defer close(s.done)
	if !s.began.Load() {
		if err := s.form(); err != nil {
			s.fail(err)
		}
		if !s.began.Load() {
			s.end()
			return
		}
	}
	tick := time.NewTicker(s.opt.Tick)
	defer tick.Stop()
	for {
		ticked := false
		select {
		case <-s.wake:
		case <-tick.C:
			ticked = true
		case <-s.quit:
			s.turnMu.Lock()
			s.end()
			s.turnMu.Unlock()
			return
		}
		s.turnMu.Lock()
		s.turn(ticked)
		s.turnMu.Unlock()
	}
}

// turn processes the queue. The caller holds turnMu.
func (s *Server) turn(ticked bool) {
	s.mu.Lock()
	work := s.queue
	s.queue = nil
	ended := s.closed
	s.mu.Unlock()
	if ended {
		return
	}
	if ticked {
		s.replica.Tick()
	}
	for _, f := range work {
		f()
	}
	s.control()
	if ticked && time.Since(s.synced) >= syncEvery {
		s.synced = time.Now()
		s.replica.Sync()
	}
	out, err := s.replica.Process()
	if errors.Is(err, replica.ErrLost) {
		s.identity.lost = true
		err = errors.Join(errLost(s.opt.ID, err), s.identity.write(&s.opt))
	}
	if err != nil {
		s.fail(err)
		return
	}
	// Show ordered entries first, because writers wait for them. Nothing waits for raft's messages
	// about them.
	s.show(out)
	s.send(out.Messages)
	for _, j := range out.Jobs {
		s.jobs.Go(func() {
			j.Run()
			_ = s.do(func() { // an error: the server has stopped, and waits for the job
				if err := s.replica.Done(j); err != nil {
					s.fail(fmt.Errorf("sequencer %d: %w", s.opt.ID, err))
				}
			})
		})
	}
	lead := s.replica.Leader()
	if lead != 0 {
		s.led.Store(s.now())
	}
	if old := s.leads.Load(); lead != old.GetId() || s.replica.Leading() != old.GetMe() {
		s.leads.Store(s.leader())
		s.history.wake() // wakes streams that report the leader
	}
}

// fail stops the sequencer because of an error.
func (s *Server) fail(err error) {
	s.opt.Logger.Error("the sequencer stops", "sequencer", s.opt.ID, "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	if !s.closed {
		s.closed = true
		close(s.quit)
	}
}

// end closes what the loop has used. The caller holds turnMu.
func (s *Server) end() {
	s.cancel()
	if s.replica != nil {
		s.err = errors.Join(s.err, s.replica.Close())
		s.history.close()
	}
	s.err = errors.Join(s.err, s.lock.Close())
}

func (s *Server) now() int64 { return time.Since(s.started).Milliseconds() }

// control runs the controller, if this sequencer leads.
func (s *Server) control() {
	leading := s.replica.Leading()
	if leading != s.leading {
		s.leading, s.since, s.pending, s.commit = leading, s.now(), nil, 0
		clear(s.nodes)
		clear(s.adding)
		s.tidy = tidy{}
		if leading {
			s.opt.Logger.Info("this sequencer leads", "sequencer", s.opt.ID, "term", s.replica.Term())
		}
	}
	if !leading || time.Since(s.decided) < s.opt.Tick {
		return
	}
	s.decided = time.Now()
	s.lookAfterMembers()
	s.forgetShards()
	for _, d := range controller.Decide(s.replica.State(), s.facts(), s.pending, s.since, s.now(), s.opt.Controller) {
		s.pending = append(s.pending, d.Entry)
		addrs := make([]string, 0, len(d.Entry.Addrs))
		for _, a := range d.Entry.Addrs {
			addrs = append(addrs, string(a))
		}
		log := s.opt.Logger.With("what", d.Entry.Kind.String(), "shard", uint32(d.Entry.Shard), "on", addrs, "why", d.Why)
		entry := d.Entry
		err := s.replica.Propose(entry, func(ef sequencer.Effect, err error) {
			s.forget(entry)
			if err == nil {
				log.Info("controller", "place", uint64(ef.Place), "id", uint32(ef.Shard))
			}
		})
		if err != nil {
			s.forget(entry)
		}
	}
}

func (s *Server) forget(e sequencer.Entry) {
	for i := range s.pending {
		if p := &s.pending[i]; p.Kind == e.Kind && p.Shard == e.Shard && (len(p.Addrs) == 0 || &p.Addrs[0] == &e.Addrs[0]) {
			s.pending = append(s.pending[:i], s.pending[i+1:]...)
			return
		}
	}
}

// show converts effects to events, and adds them to the history.
func (s *Server) show(out *replica.Output) {
	state := s.replica.State()
	if out.Snapshot != nil {
		first := state.Applied() - uint64(len(out.Effects))
		s.history.reset(first)
		s.syncPeers()
	}
	if len(out.Effects) == 0 {
		return
	}
	events, sizes := make([]*logpb.Event, 0, len(out.Effects)), make([]int32, 0, len(out.Effects))
	for i := range out.Effects {
		if e := event(&out.Effects[i]); e != nil {
			e.Place = uint64(out.Effects[i].Place)
			events, sizes = append(events, e), append(sizes, sizeOf(&out.Effects[i]))
		}
		switch out.Effects[i].Kind {
		case sequencer.KindCut:
			s.cuts++
		case sequencer.KindSequencer:
			s.syncPeers()
		}
	}
	s.history.add(events, sizes, state.Applied(), state.Tail())
}
