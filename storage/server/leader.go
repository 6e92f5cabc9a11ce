package server

import (
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
	// silence is how long the node waits for a message of its leader before it looks for another
	// one, and firstWord how long it waits for the first message.
	silence   = follow.Silence
	firstWord = 350 * time.Millisecond
)

// reportEvery is the interval of reports to the leader when nothing changes.
const reportEvery = 100 * time.Millisecond

// leaderLink reports to the sequencers' leader the lengths of shards, and the sealed shards of
// which the node holds everything. Reports are cumulative, so a lost report does no harm.
type leaderLink struct {
	n    *Node
	wake chan struct{}

	sending sync.Mutex       // locked before mu
	st      transport.Stream // the stream to the leader, nil if there is none
	heard   time.Time

	mu      sync.Mutex
	lengths map[uint32]*logpb.Report
	changed map[uint32]bool // since the last report
	full    map[uint32]bool
	newFull bool
	// empty holds the sealed shards in which nothing is left, damaged the shards with damaged
	// replicas.
	empty    map[uint32]bool
	newEmpty bool
	damaged  map[uint32]bool
	told     map[uint32]health // last reported state of the replicas, in this session
}

// health is the reported state of a replica.
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

func (l *leaderLink) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// report reports that a majority holds length records of an open shard; their size here is bytes.
func (l *leaderLink) report(shard uint32, incarnation, length, bytes uint64) {
	l.mu.Lock()
	l.lengths[shard] = &logpb.Report{Shard: shard, Incarnation: incarnation, Length: length, Bytes: bytes}
	l.changed[shard] = true
	l.mu.Unlock()
	// The caller sends the report itself, unless another goroutine is sending, or the leader has
	// been silent for a while: the caller never waits for the leader.
	if l.sending.TryLock() {
		defer l.sending.Unlock()
		if l.st != nil && time.Since(l.heard) < 2*reportEvery {
			_ = l.st.Send(l.message(false, false)) // reportTo notices when the stream ends
			return
		}
	}
	l.wakeUp()
}

// holds reports that the node holds all of a sealed shard.
func (l *leaderLink) holds(shard uint32) {
	l.mu.Lock()
	if l.full == nil {
		l.full = map[uint32]bool{}
	}
	l.full[shard], l.newFull = true, true
	delete(l.lengths, shard)
	l.mu.Unlock()
	if l.wake != nil {
		l.wakeUp()
	}
}

// looked sets which replicas are damaged and which sealed shards are empty.
func (l *leaderLink) looked(damaged, empty map[uint32]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newEmpty = l.newEmpty || !maps.Equal(l.empty, empty)
	l.damaged, l.empty = damaged, empty
}

// message returns the next report: all of the state if all is set, else what has changed. With beat it
// includes the health of the replicas.
func (l *leaderLink) message(all, beat bool) *logpb.NodeReport {
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

// healths returns the health of the replicas for which it has changed since the last report. The
// caller holds mu.
func (l *leaderLink) healths() (news []*logpb.ReplicaHealth) {
	for _, r := range l.n.all() {
		old, was := l.told[r.id]
		h, ordered, report := r.health(old.ordered, l.damaged[r.id])
		switch {
		case !report && !was:
			continue
		case !report: // sealed, or repaired: reported once more
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

// run finds the leader and reports to it. It starts when the node has received the metalog: the
// leader opens shards on every node that reports, and a node that learns of a shard only from a
// snapshot has missed the shard's start.
func (l *leaderLink) run() {
	select {
	case <-l.n.following:
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
		next, err := l.reportTo(addr)
		if next == addr {
			next = ""
		}
		hint = next
		if sharedlog.KindOf(err) == sharedlog.KindInvalid {
			l.n.stop(err) // the node has been removed from the cluster
			return
		}
		if err != nil {
			l.n.opt.Logger.Debug("looking for the leader", "node", l.n.opt.Addr, "tried", addr, "error", err)
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
	errSilent    = errors.New("it sends nothing")
)

// reportTo reports to one sequencer as long as it is the leader. It returns the address of the new
// leader if the sequencer names it.
func (l *leaderLink) reportTo(addr string) (hint string, _ error) {
	ctx, cancel := l.n.untilQuit()
	defer cancel()
	st, err := l.n.opt.Dialer.Open(ctx, addr, "sequencer/node")
	if err != nil {
		return "", err
	}
	if err := st.Hello(l.message(true, true)); err != nil {
		return "", err
	}
	watch := time.AfterFunc(firstWord, cancel)
	defer watch.Stop()
	told := make(chan string, 1) // the leader, if it is another sequencer
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
	t := time.NewTicker(reportEvery)
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
			if time.Since(last) < reportEvery/2 {
				continue
			}
		}
		last = time.Now()
		l.sending.Lock()
		err := st.Send(l.message(false, beat))
		beat = false
		l.sending.Unlock()
		if err != nil {
			return "", err
		}
	}
}
