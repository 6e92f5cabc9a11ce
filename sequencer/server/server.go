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

// Options of a sequencer.
type Options struct {
	// ID is this one's, Addr the address at which others reach it (default: of Peers).
	ID   uint64
	Addr string
	// Peers are the addresses of all with which the cluster began, by ID, this one
	// included. What the directory holds counts more, from feature level 2 on.
	Peers map[uint64]string
	// An empty directory is refused, unless: with Bootstrap the sequencer begins a
	// cluster together with all of Peers; with Join, addresses of sequencers of a
	// cluster that exists, it waits to be added to that.
	Bootstrap bool
	Join      []string
	FS        vfs.FS
	Dir       string
	// Dialer reaches the peers.
	Dialer transport.Dialer
	// Controller says how soon a storage node is given up; the zero value is
	// controller.Default.
	Controller controller.Settings
	// Quotas are the leader's, so the same at all sequencers.
	Quotas Quotas
	// Tick is raft's clock: a leader speaks every tick, and is given up after ten
	// to twenty. Default 20 ms.
	Tick time.Duration
	// Fsync is "always" (default: an entry is on disk before it counts) or "interval"
	// (with the operating system, on disk within 100 ms).
	Fsync string
	// HistoryEvents and HistoryMemory (bytes, about) bound the events that are kept in
	// memory for followers. Defaults 200 000 and 64 MiB.
	HistoryEvents int
	HistoryMemory int64
	// HistoryBytes is how much of the metalog stays on disk for followers that are
	// further behind. Default 1 GiB; negative: nothing.
	HistoryBytes int64
	// FollowEvents is how many events one message to a follower has at most. Default 4096.
	FollowEvents int
	// ForgetAfter is how long nothing must have been left in a sealed shard before it
	// leaves the tables: writers that were cut off ask it meanwhile what became of their
	// appends. Default 5 min.
	ForgetAfter time.Duration
	// SnapshotBytes is how much is written to the log before there is a new snapshot;
	// default as replica.Options says.
	SnapshotBytes int64
	Cluster       string
	Version       string
	Logger        *slog.Logger
}

// Server is a sequencer.
type Server struct {
	opt      Options
	lock     io.Closer // of the directory
	identity *identity
	me       *logpb.Identity        // what others are told before it is a member
	waiting  atomic.Pointer[string] // for what, before it is one
	began    atomic.Bool            // it is; from then on:
	history  *history
	started  time.Time
	// quotaRefused counts what was refused for Options.Quotas.
	quotaRefused atomic.Uint64

	mu     sync.Mutex
	queue  []func() // for the loop
	closed bool
	wake   chan struct{}
	quit   chan struct{}
	done   chan struct{} // the loop has ended
	err    error         // why, if not by Close
	peerWG sync.WaitGroup
	jobs   sync.WaitGroup // for the disk
	led    atomic.Int64   // when there was a leader, as far as is known here
	// leads is who leads; another message when that has changed.
	leads atomic.Pointer[logpb.Leader]
	// How many streams of storage nodes, and of clients, follow.
	followers, clientFollowers atomic.Int64
	oldClients                 atomic.Int64    // of them, that speak a lower level than this program
	ctx                        context.Context // of the server's life
	cancel                     context.CancelFunc

	// Of whoever makes the turn:
	turnMu  sync.Mutex
	replica *replica.Replica
	peers   map[uint64]*peer
	known   map[uint64]*logpb.SequencerHello // what others have said of themselves
	heard   map[uint64]int64                 // when something came from them
	adding  map[uint64]bool                  // whose addresses or promotion are proposed
	commit  uint64                           // raft's, when the members were looked after the last time
	leading bool
	since   int64
	nodes   map[string]*node
	pending []sequencer.Entry
	tidy    tidy
	decided time.Time
	synced  time.Time
	cuts    uint64
}

// Start opens the sequencer's data and begins to work. The caller registers it at a
// transport server (Register) and serves that.
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
		known: map[uint64]*logpb.SequencerHello{}, heard: map[uint64]int64{}, adding: map[uint64]bool{},
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

// Register names the sequencer's streams at a server.
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

// Done is closed when the sequencer has ended, by Close or because its disk failed
// (Err).
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns why it ended, nil if by Close; after Done.
func (s *Server) Err() error { return s.err }

// Close ends the sequencer. Streams end with the transport server.
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

// syncEvery is how long an entry may wait for the disk under fsync interval.
const syncEvery = 100 * time.Millisecond

var (
	errEnded    = errors.New("the sequencer has ended")
	errNotBegun = errors.New("this sequencer is not a member of the cluster yet")
)

func errRemoved(id uint64) error {
	return sharedlog.Errorf(sharedlog.KindInvalid, "sequencer %d was removed from the cluster; end it, its directory is of no use any more", id)
}

// do hands f to the loop. If it returns an error, f is not called.
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
	// At rest the caller makes the turn itself: to wake the loop would take longer
	// than the turn. One turn, or its own stream would wait for all the others'.
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

// turn serves what waits; turnMu is held.
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
	// What is ordered is shown first: writers wait for it. Nobody waits for what raft
	// says of it.
	s.show(out)
	s.send(out.Messages)
	for _, j := range out.Jobs {
		s.jobs.Go(func() {
			j.Run()
			_ = s.do(func() { // an error: it has ended, and its end waits for the job
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
		s.history.nudge() // who waits for a leader's word
	}
}

// fail begins the end.
func (s *Server) fail(err error) {
	s.opt.Logger.Error("the sequencer ends", "sequencer", s.opt.ID, "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	if !s.closed {
		s.closed = true
		close(s.quit)
	}
}

// end ends what the loop has had; turnMu is held.
func (s *Server) end() {
	s.cancel()
	if s.replica != nil {
		s.err = errors.Join(s.err, s.replica.Close())
		s.history.close()
	}
	s.err = errors.Join(s.err, s.lock.Close())
}

func (s *Server) now() int64 { return time.Since(s.started).Milliseconds() }

// control lets the controller decide, if this sequencer leads.
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

// show makes events of effects, and history of events.
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
