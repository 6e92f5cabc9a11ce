package follow

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// Level is the feature level of this program's followers.
const Level = 2

const (
	// Silence is how long a sequencer may send nothing before its follower tries another one;
	// firstMessage is the limit for the first message.
	Silence      = 250 * time.Millisecond
	firstMessage = 350 * time.Millisecond
	// round is the pause after no sequencer has answered.
	round = 40 * time.Millisecond
	// insistFor is how long to wait for a sequencer that does not answer, while all others answer
	// that the events are gone.
	insistFor = 10 * time.Second
	// retryLeader is how soon a leader that did not answer is tried again, initially and at most.
	retryLeader, retryLeaderMost = time.Second, 30 * time.Second
)

// Options of Run. All but Trouble, Spread and Insist are required.
type Options struct {
	Dialer transport.Dialer
	// Sequencers returns the known addresses of the sequencers.
	Sequencers func() []string
	// Name is the process's name; the order in which it tries sequencers depends on it.
	Name string
	// Spread is how long, at most, a follower stays at its sequencer after it learns of another
	// leader.
	Spread time.Duration
	// Request returns the first message of a new stream.
	Request func() *logpb.FollowRequest
	// Insist, if not nil, reports whether the process would lose something by a snapshot in place
	// of events: it then asks all sequencers for the events before it accepts a snapshot.
	Insist func() bool
	// Take handles a message. Its error ends Run.
	Take func(*logpb.FollowReply) error
	// Trouble is called with the reason why a sequencer is not followed, and with nil when a
	// message arrives.
	Trouble func(addr string, err error)
	Logger  *slog.Logger
}

// Run follows the metalog until ctx ends. It returns earlier if Take fails, or if a sequencer
// answers that this process knows more events than exist (sharedlog.ErrCorrupt).
func Run(ctx context.Context, o Options) error {
	if o.Trouble == nil {
		o.Trouble = func(string, error) {}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(o.Name))
	f := &follower{Options: o, hash: h.Sum64()}
	f.next = int(f.hash % 1024)
	for {
		addr := f.choose()
		err := f.follow(ctx, addr)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var fatal fatal
		if errors.As(err, &fatal) {
			return fatal.error
		}
		if sharedlog.KindOf(err) == sharedlog.KindCorrupt {
			return err
		}
		if errors.Is(err, errGone) {
			f.wentFrom(addr)
		}
		o.Logger.Debug("switching to another sequencer", "name", o.Name, "left", addr, "error", err)
		o.Trouble(addr, err)
		if f.tried >= len(o.Sequencers()) {
			f.tried = 0
			wait(ctx, round)
		}
	}
}

// fatal is an error that ends Run.
type fatal struct{ error }

var (
	errSilent    = errors.New("no message from it in time")
	errNoAddress = errors.New("no address of a sequencer is known")
	errSnapshot  = errors.New("it is too far ahead or behind for events")
	errGone      = errors.New("it no longer has the events")
)

// follower is the state of Run.
type follower struct {
	Options
	hash  uint64
	next  int // index of the next sequencer to try
	tried int // sequencers tried since the last message

	gone      map[string]bool // sequencers that no longer have the events
	goneSince time.Time       // when the first of them answered so

	leader   string // as the followed sequencer reports; empty: unknown
	attempts int    // failed attempts to follow this leader
}

// choose returns the sequencer to follow now.
func (f *follower) choose() string {
	f.tried++
	if f.leader != "" { // the last followed sequencer named it; it is tried once
		addr := f.leader
		f.leader = ""
		return addr
	}
	all := f.Sequencers()
	if len(all) == 0 {
		return ""
	}
	f.next++
	return all[f.next%len(all)]
}

// wentFrom records that a sequencer no longer has the events.
func (f *follower) wentFrom(addr string) {
	if len(f.gone) == 0 {
		f.gone, f.goneSince = map[string]bool{}, time.Now()
	}
	f.gone[addr] = true
}

// insists reports whether the follower asks for events and refuses a snapshot in their place.
func (f *follower) insists() bool {
	if f.Insist == nil || !f.Insist() {
		return false
	}
	if len(f.gone) == 0 || time.Since(f.goneSince) > insistFor {
		return len(f.gone) == 0
	}
	for _, addr := range f.Sequencers() {
		if !f.gone[addr] {
			return true
		}
	}
	return false
}

// follow follows a sequencer, and then the leader, until a stream fails.
func (f *follower) follow(ctx context.Context, addr string) error {
	if addr == "" {
		return errNoAddress
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	current, err := f.open(ctx, addr)
	if err != nil {
		return err
	}
	var candidate *stream
	var move <-chan time.Time
	for {
		var offered <-chan *logpb.FollowReply
		if candidate != nil {
			offered = candidate.in
		}
		select {
		case m, ok := <-current.in:
			if !ok {
				if f.leader == current.addr {
					f.leader = "" // another sequencer will lead
				}
				return current.err
			}
			if err := f.take(current, m); err != nil {
				return err
			}
			switch {
			case f.leader == "" || f.leader == current.addr:
				move = nil
			case move == nil && candidate == nil:
				move = time.After(f.pause())
			}
		case <-move:
			move = nil
			if candidate, err = f.open(ctx, f.leader); err != nil {
				f.failed(f.leader, err)
				move = time.After(f.pause())
			}
		case m, ok := <-offered:
			if ok && m.GetSnapshot() == nil && !m.GetGone() {
				current.cancel()
				current, candidate, f.attempts = candidate, nil, 0
				if err := f.take(current, m); err != nil {
					return err
				}
				continue
			}
			err := errSnapshot
			if !ok {
				err = candidate.err
			}
			candidate.cancel()
			f.failed(candidate.addr, err)
			candidate = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take passes a message to Take and records who leads.
func (f *follower) take(s *stream, m *logpb.FollowReply) error {
	if m.GetGone() {
		return errGone
	}
	f.tried = 0
	if f.Trouble(s.addr, nil); len(m.GetEvents()) > 0 || m.GetSnapshot() != nil {
		clear(f.gone)
	}
	if err := f.Take(m); err != nil {
		return fatal{err}
	}
	if l := m.GetLeader(); l != nil {
		leader := l.GetAddr()
		if l.GetMe() {
			leader = s.addr // by whichever address it is reached
		}
		if leader != f.leader {
			f.leader, f.attempts = leader, 0
		}
	}
	return nil
}

func (f *follower) failed(leader string, err error) {
	f.attempts++
	f.Logger.Debug("cannot follow the leader", "name", f.Name, "leader", leader, "error", err)
}

// leastPause is the least time for which a follower stays at one of two sequencers that name each
// other as the leader.
const leastPause = 10 * time.Millisecond

// pause returns how long to wait before following the leader.
func (f *follower) pause() time.Duration {
	pause := leastPause
	if f.Spread > 0 {
		pause += time.Duration(f.hash>>16) % f.Spread
	}
	if f.attempts > 0 {
		pause += min(retryLeader<<min(f.attempts-1, 10), retryLeaderMost)
	}
	return pause
}

// stream is a stream from one sequencer.
type stream struct {
	addr   string
	cancel context.CancelFunc
	in     chan *logpb.FollowReply // closed when the stream has ended
	err    error                   // why it has ended
}

// open opens a stream from a sequencer.
func (f *follower) open(ctx context.Context, addr string) (*stream, error) {
	s := &stream{addr: addr, in: make(chan *logpb.FollowReply)}
	ctx, s.cancel = context.WithCancel(ctx)
	st, err := f.Dialer.Open(ctx, addr, "sequencer/follow")
	if err == nil {
		req := f.Request()
		req.Level = Level
		req.EventsOnly = !req.GetSnapshot() && f.insists()
		err = st.Hello(req)
	}
	if err != nil {
		s.cancel()
		return nil, err
	}
	go s.receive(ctx, st)
	return s, nil
}

func (s *stream) receive(ctx context.Context, st transport.Stream) {
	defer close(s.in)
	defer s.cancel()
	watch := time.AfterFunc(firstMessage, s.cancel)
	defer watch.Stop()
	for {
		m := new(logpb.FollowReply)
		err := st.Recv(m)
		if !watch.Stop() && err != nil {
			err = fmt.Errorf("%s: %w", s.addr, errSilent)
		}
		if err != nil {
			s.err = err
			return
		}
		select {
		case s.in <- m:
			watch.Reset(Silence) // the time that Take takes does not count
		case <-ctx.Done():
			s.err = ctx.Err()
			return
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
