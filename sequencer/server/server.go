package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

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
	// ID is this one's; Peers are the addresses of all, by ID, this one included.
	ID    uint64
	Peers map[uint64]string
	FS    vfs.FS
	Dir   string
	// Dialer reaches the peers.
	Dialer transport.Dialer
	// Controller says how soon a storage node is given up; the zero value is
	// controller.Default.
	Controller controller.Settings
	// Tick is raft's clock: a leader speaks every tick, and is given up after ten
	// to twenty. Default 20 ms.
	Tick time.Duration
	// Fsync is "always" (default: an entry is on disk before it counts) or "interval"
	// (with the operating system, on disk within 100 ms).
	Fsync string
	// HistoryEvents is how many events are kept for followers. Default 200 000.
	HistoryEvents int
	Cluster       string
	Version       string
	Logger        *slog.Logger
}

// Server is a sequencer.
type Server struct {
	opt     Options
	history *history
	peers   map[uint64]*peer
	began   time.Time

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
	ctx                        context.Context // of the server's life
	cancel                     context.CancelFunc

	// Of whoever makes the turn:
	turnMu  sync.Mutex
	replica *replica.Replica
	leading bool
	since   int64
	nodes   map[string]*node
	pending []sequencer.Entry
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
	if o.HistoryEvents == 0 {
		o.HistoryEvents = 200_000
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
	if o.Peers[o.ID] == "" {
		return nil, fmt.Errorf("sequencer %d is not among the sequencers given", o.ID)
	}
	s := &Server{
		opt: o, peers: map[uint64]*peer{}, nodes: map[string]*node{}, began: time.Now(),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var voters []uint64
	for id := range o.Peers {
		voters = append(voters, id)
	}
	var err error
	s.replica, err = replica.Open(replica.Options{ID: o.ID, Voters: voters, FS: o.FS, Dir: o.Dir, Logger: o.Logger, Async: true, Lazy: o.Fsync == "interval"})
	if err != nil {
		return nil, err
	}
	st := s.replica.State()
	s.history = newHistory(o.HistoryEvents, st.Applied(), st.Tail())
	for id, addr := range o.Peers {
		if id != o.ID {
			p := &peer{id: id, addr: addr, server: s, queue: make(chan *raftpb.Message, 1024)}
			s.peers[id] = p
			s.peerWG.Go(p.run)
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

var errEnded = errors.New("the sequencer has ended")

// do hands f to the loop. If it returns errEnded, f is not called.
func (s *Server) do(f func()) error {
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
	lead := s.leader()
	if lead.GetId() != 0 {
		s.led.Store(s.now())
	}
	if old := s.leads.Load(); lead.GetId() != old.GetId() || lead.GetMe() != old.GetMe() {
		s.leads.Store(lead)
		s.history.nudge() // who waits for a leader's word
	}
}

// fail begins the end.
func (s *Server) fail(err error) {
	s.opt.Logger.Error("the sequencer has failed; start it again when its disk is well", "sequencer", s.opt.ID, "error", err)
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
	s.err = errors.Join(s.err, s.replica.Close())
	s.history.close()
}

func (s *Server) now() int64 { return time.Since(s.began).Milliseconds() }

// control lets the controller decide, if this sequencer leads.
func (s *Server) control() {
	leading := s.replica.Leading()
	if leading != s.leading {
		s.leading, s.since, s.pending = leading, s.now(), nil
		clear(s.nodes)
		if leading {
			s.opt.Logger.Info("this sequencer leads", "sequencer", s.opt.ID, "term", s.replica.Term())
		}
	}
	if !leading || time.Since(s.decided) < s.opt.Tick {
		return
	}
	s.decided = time.Now()
	nodes := make([]controller.Node, 0, len(s.nodes))
	for _, n := range s.nodes {
		nodes = append(nodes, n.Node)
	}
	for _, d := range controller.Decide(s.replica.State(), nodes, s.pending, s.since, s.now(), s.opt.Controller) {
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
	}
	if len(out.Effects) == 0 {
		return
	}
	events := make([]*logpb.Event, 0, len(out.Effects))
	for i := range out.Effects {
		if e := event(&out.Effects[i]); e != nil {
			e.Place = uint64(out.Effects[i].Place)
			events = append(events, e)
		}
		if out.Effects[i].Kind == sequencer.KindCut {
			s.cuts++
		}
	}
	s.history.add(events, state.Applied(), state.Tail())
}
