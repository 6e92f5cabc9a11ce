package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/follow"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

const (
	// silence is after how long without a message a leader is left for another, and
	// firstWord how long the first one may take.
	silence   = follow.Silence
	firstWord = 350 * time.Millisecond
)

// speakEvery is how often the leader hears of a node that has nothing to say.
const speakEvery = 100 * time.Millisecond

// leaderLink tells the sequencers' leader how long the shards are, and which sealed
// ones the node holds all of. What it says is cumulative, so a lost word is no loss.
type leaderLink struct {
	n    *Node
	wake chan struct{}

	sending sync.Mutex       // before mu
	st      transport.Stream // to the leader, while there is one
	heard   time.Time

	mu      sync.Mutex
	lengths map[uint32]*logpb.Report
	changed map[uint32]bool // since the last word
	full    map[uint32]bool
	newFull bool
}

func (l *leaderLink) init(n *Node) {
	l.n, l.wake = n, make(chan struct{}, 1)
	l.lengths, l.changed = map[uint32]*logpb.Report{}, map[uint32]bool{}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full == nil {
		l.full = map[uint32]bool{}
	}
}

func (l *leaderLink) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// report says that a majority holds length records of an open shard.
func (l *leaderLink) report(shard uint32, incarnation, length uint64) {
	l.mu.Lock()
	l.lengths[shard] = &logpb.Report{Shard: shard, Incarnation: incarnation, Length: length}
	l.changed[shard] = true
	l.mu.Unlock()
	// Said at once, unless somebody is speaking, or the leader has not spoken for a
	// while: nobody waits for it.
	if l.sending.TryLock() {
		defer l.sending.Unlock()
		if l.st != nil && time.Since(l.heard) < 2*speakEvery {
			_ = l.st.Send(l.word(false)) // the stream has ended: speak notices
			return
		}
	}
	l.nudge()
}

// holds says that the node holds all of a sealed shard.
func (l *leaderLink) holds(shard uint32) {
	l.mu.Lock()
	if l.full == nil {
		l.full = map[uint32]bool{}
	}
	l.full[shard], l.newFull = true, true
	delete(l.lengths, shard)
	l.mu.Unlock()
	if l.wake != nil {
		l.nudge()
	}
}

// word returns what is to be said: what has changed, or all.
func (l *leaderLink) word(all bool) *logpb.NodeReport {
	index, _, _ := l.n.table.at()
	m := &logpb.NodeReport{Addr: l.n.opt.Addr, Incarnation: l.n.incarnation, Applied: index}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, r := range l.lengths {
		if all || l.changed[id] {
			m.Reports = append(m.Reports, r)
		}
	}
	clear(l.changed)
	if all || l.newFull {
		m.FullChanged, m.Full = true, slices.Sorted(maps.Keys(l.full))
		l.newFull = false
	}
	return m
}

// run looks for the leader and speaks to it. Not before the node hears the metalog: the
// leader opens a shard on whoever speaks, and who hears of it by a snapshot only has
// missed how it began.
func (l *leaderLink) run() {
	select {
	case <-l.n.hears:
	case <-l.n.quit:
		return
	}
	hint := ""
	for i := 0; ; i++ {
		addr := hint
		if addr == "" {
			addrs := l.n.table.members.Addresses()
			addr = addrs[i%len(addrs)]
		}
		next, err := l.speak(addr)
		if next == addr {
			next = ""
		}
		hint = next
		if err != nil {
			l.n.opt.Logger.Debug("looks for the leader", "node", l.n.opt.Addr, "tried", addr, "error", err)
		}
		if hint != "" {
			continue
		}
		select {
		case <-l.n.quit:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

var (
	errNotLeader = errors.New("another sequencer leads")
	errSilent    = errors.New("it says nothing")
)

// speak speaks to one sequencer as long as it leads, and returns who leads then, as
// far as it says.
func (l *leaderLink) speak(addr string) (hint string, _ error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(contextOf(l.n.quit, ctx), cancel)()
	st, err := l.n.opt.Dialer.Open(ctx, addr, "sequencer/node")
	if err != nil {
		return "", err
	}
	if err := st.Hello(l.word(true)); err != nil {
		return "", err
	}
	watch := time.AfterFunc(firstWord, cancel)
	defer watch.Stop()
	told := make(chan string, 1) // who leads, if another one does
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		for {
			m := new(logpb.Leader)
			if err := st.Recv(m); err != nil {
				ended <- err
				return
			}
			watch.Reset(silence)
			l.sending.Lock()
			l.st, l.heard = st, time.Now()
			l.sending.Unlock()
			if !m.GetMe() {
				told <- m.GetAddr()
				return
			}
		}
	}()
	defer func() {
		l.sending.Lock()
		l.st = nil
		l.sending.Unlock()
	}()
	t := time.NewTicker(speakEvery)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			select {
			case hint = <-told:
				return hint, errNotLeader
			case err := <-ended:
				return "", err
			default:
				return "", errSilent
			}
		case <-l.wake:
		case <-t.C:
			if time.Since(last) < speakEvery/2 {
				continue
			}
		}
		last = time.Now()
		l.sending.Lock()
		err := st.Send(l.word(false))
		l.sending.Unlock()
		if err != nil {
			return "", err
		}
	}
}
