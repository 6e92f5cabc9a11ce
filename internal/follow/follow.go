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

// Level is the feature level that followers of this program speak.
const Level = 2

const (
	// Silence is after how long without a message a sequencer is left for another, and
	// firstMessage how long the first one may take.
	Silence      = 250 * time.Millisecond
	firstMessage = 350 * time.Millisecond
	// round is the pause when no sequencer has answered.
	round = 40 * time.Millisecond
	// insistFor is how long a sequencer that does not answer is waited for, while all
	// others say that the events are gone.
	insistFor = 10 * time.Second
	// retryLeader is how soon a leader that did not answer is tried again, at first and
	// at most.
	retryLeader, retryLeaderMost = time.Second, 30 * time.Second
)

// Options of Run. All but Trouble and Spread are needed.
type Options struct {
	Dialer transport.Dialer
	// Sequencers returns their addresses, as far as they are known.
	Sequencers func() []string
	// Name is the process's; the order in which it tries sequencers follows from it.
	Name string
	// Spread is the longest time for which a follower that hears of a leader stays
	// where it is.
	Spread time.Duration
	// Request returns what a new stream begins with.
	Request func() *logpb.FollowRequest
	// Insist, if not nil, reports whether a snapshot in place of events costs this
	// process something: then it asks all sequencers for the events before it takes one.
	Insist func() bool
	// Take takes a message. Its error ends Run.
	Take func(*logpb.FollowReply) error
	// Trouble is told why a sequencer is not followed, and nil when a message came.
	Trouble func(addr string, err error)
	Logger  *slog.Logger
}

// Run follows until ctx ends. It returns before that if Take fails, or if a sequencer
// says that this process has heard of more than there is (sharedlog.ErrCorrupt).
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
		o.Logger.Debug("follows another sequencer", "name", o.Name, "left", addr, "error", err)
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
	errSilent   = errors.New("it says nothing")
	errNobody   = errors.New("no address of a sequencer is known")
	errSnapshot = errors.New("it is too far ahead or behind for events")
	errGone     = errors.New("it does not have the events any more")
)

// follower is the state of Run.
type follower struct {
	Options
	hash  uint64
	next  int // of the sequencers, to be tried
	tried int // sequencers since the last message

	gone      map[string]bool // sequencers that do not have the events any more
	goneSince time.Time       // when the first of them said so

	leader   string // as the followed sequencer says; empty: not known
	attempts int    // to follow this leader that have failed
}

// choose returns the sequencer to follow now.
func (f *follower) choose() string {
	f.tried++
	if f.leader != "" { // the one that was followed said so last; it is tried once
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

// wentFrom notes that a sequencer does not have the events any more.
func (f *follower) wentFrom(addr string) {
	if len(f.gone) == 0 {
		f.gone, f.goneSince = map[string]bool{}, time.Now()
	}
	f.gone[addr] = true
}

// insists reports whether events are asked for, and not a snapshot in their place.
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
		return errNobody
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
					f.leader = "" // another one will lead
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

// take hands on a message, and notes who leads.
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
			leader = s.addr // however it is reached
		}
		if leader != f.leader {
			f.leader, f.attempts = leader, 0
		}
	}
	return nil
}

func (f *follower) failed(leader string, err error) {
	f.attempts++
	f.Logger.Debug("does not follow the leader", "name", f.Name, "leader", leader, "error", err)
}

// leastPause is how long two sequencers that take each other for the leader keep a
// follower, at least.
const leastPause = 10 * time.Millisecond

// pause returns how long the leader is not followed yet.
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

// stream is what one sequencer says.
type stream struct {
	addr   string
	cancel context.CancelFunc
	in     chan *logpb.FollowReply // closed when it has ended
	err    error                   // why
}

// open begins to follow a sequencer.
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
			watch.Reset(Silence) // the time that Take takes is not the sequencer's
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
