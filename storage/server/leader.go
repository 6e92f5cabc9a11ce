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
	"tailrace.dev/tailrace/sharedlog"
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
	// empty are sealed shards in which nothing is left, damaged those whose replica is.
	empty    map[uint32]bool
	newEmpty bool
	damaged  map[uint32]bool
	told     map[uint32]health // of the replicas, in this session
}

// health is what the leader was told of a replica.
type health struct {
	state   logpb.ReplicaHealth_State
	length  uint64
	ordered uint64
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

// report says that a majority holds length records of an open shard, which here are so
// many bytes.
func (l *leaderLink) report(shard uint32, incarnation, length, bytes uint64) {
	l.mu.Lock()
	l.lengths[shard] = &logpb.Report{Shard: shard, Incarnation: incarnation, Length: length, Bytes: bytes}
	l.changed[shard] = true
	l.mu.Unlock()
	// Said at once, unless somebody is speaking, or the leader has not spoken for a
	// while: nobody waits for it.
	if l.sending.TryLock() {
		defer l.sending.Unlock()
		if l.st != nil && time.Since(l.heard) < 2*speakEvery {
			_ = l.st.Send(l.word(false, false)) // the stream has ended: speak notices
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

// looked says which replicas are damaged, and which sealed shards are empty.
func (l *leaderLink) looked(damaged, empty map[uint32]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newEmpty = l.newEmpty || !maps.Equal(l.empty, empty)
	l.damaged, l.empty = damaged, empty
}

// word returns what is to be said: what has changed, or all. A beat looks at the replicas
// too.
func (l *leaderLink) word(all, beat bool) *logpb.NodeReport {
	index, _, _ := l.n.table.at()
	m := &logpb.NodeReport{Addr: l.n.opt.Addr, Incarnation: l.n.incarnation, Applied: index, Level: featureLevel, Zone: l.n.opt.Zone}
	free, _ := l.n.room.Space()
	m.Readonly, m.FreeBytes = l.n.room.ReadOnly(), uint64(free)
	l.mu.Lock()
	defer l.mu.Unlock()
	if all {
		l.told = map[uint32]health{}
	}
	if all || beat {
		m.Replicas = l.healths()
	}
	if all || l.newEmpty {
		m.EmptyChanged, m.Empty = true, slices.Sorted(maps.Keys(l.empty))
		l.newEmpty = false
	}
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

// healths returns the replicas whose state is news to the leader; mu is held.
func (l *leaderLink) healths() (news []*logpb.ReplicaHealth) {
	for _, r := range l.n.all() {
		old, was := l.told[r.id]
		h, ordered, report := r.health(old.ordered, l.damaged[r.id])
		switch {
		case !report && !was:
			continue
		case !report: // sealed, or mended: named once more
			delete(l.told, r.id)
			h.State = logpb.ReplicaHealth_OK
		default:
			l.told[r.id] = health{h.GetState(), h.GetLength(), ordered}
			if was && h.GetState() == old.state && (old.state != logpb.ReplicaHealth_BEHIND || h.GetLength() == old.length) {
				continue
			}
		}
		news = append(news, h)
	}
	return news
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
		if sharedlog.KindOf(err) == sharedlog.KindInvalid {
			l.n.stop(err) // the node was removed
			return
		}
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
	if err := st.Hello(l.word(true, true)); err != nil {
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
	last, beat := time.Now(), false
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
			beat = true
			if time.Since(last) < speakEvery/2 {
				continue
			}
		}
		last = time.Now()
		l.sending.Lock()
		err := st.Send(l.word(false, beat))
		beat = false
		l.sending.Unlock()
		if err != nil {
			return "", err
		}
	}
}
