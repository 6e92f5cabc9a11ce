package leader

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/follow"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage/server/table"
)

const (
	// silence is how long the node waits for a message of its leader before it looks for another
	// one, and firstReply how long it waits for the first one.
	silence    = follow.Silence
	firstReply = 350 * time.Millisecond
)

// reportEvery is the interval of reports to the leader when nothing changes.
const reportEvery = 100 * time.Millisecond

// Replica is a replica on the node.
type Replica interface {
	ID() uint32
	// Health returns the replica's state; report is false if the leader need not know it. before is
	// the ordered length at the last report.
	Health(before uint64, damaged bool) (h *logpb.ReplicaHealth, ordered uint64, report bool)
}

// Options configures a Link.
type Options struct {
	Addr, Zone  string // of the node
	Incarnation uint64
	Level       uint32 // the feature level that this program supports
	Dialer      transport.Dialer
	Logger      *slog.Logger
	Table       *table.Table
	// Replicas returns the replicas on the node, ordered by shard.
	Replicas func() []Replica
	// Space returns the free bytes of the disk, and whether the node is read-only.
	Space func() (free int64, readonly bool)
}

// Link reports to the sequencers' leader the lengths of shards, and the sealed shards of which the
// node holds everything. Reports are cumulative, so a lost report does no harm.
type Link struct {
	opt  Options
	wake chan struct{}

	sending  sync.Mutex       // locked before mu
	st       transport.Stream // the stream to the leader, nil if there is none
	received time.Time        // when the leader's last message was received

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
	reported map[uint32]health // last reported state of the replicas, on this stream
}

// health is the reported state of a replica.
type health struct {
	state   logpb.ReplicaHealth_State
	length  uint64
	ordered uint64
}

// New returns a link. Report and the other methods may be called before Run.
func New(o Options) *Link {
	return &Link{
		opt: o, wake: make(chan struct{}, 1),
		lengths: map[uint32]*logpb.Report{}, changed: map[uint32]bool{}, full: map[uint32]bool{},
	}
}

func (l *Link) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Report reports that a majority holds length records of an open shard; their size here is bytes.
func (l *Link) Report(shard uint32, incarnation, length, bytes uint64) {
	l.mu.Lock()
	l.lengths[shard] = &logpb.Report{Shard: shard, Incarnation: incarnation, Length: length, Bytes: bytes}
	l.changed[shard] = true
	l.mu.Unlock()
	// The caller sends the report itself, unless another goroutine is sending, or the leader has
	// been silent for a while: the caller never waits for the leader.
	if l.sending.TryLock() {
		defer l.sending.Unlock()
		if l.st != nil && time.Since(l.received) < 2*reportEvery {
			_ = l.st.Send(l.message(false, false)) // reportTo notices when the stream ends
			return
		}
	}
	l.wakeUp()
}

// Holds reports that the node holds all of a sealed shard.
func (l *Link) Holds(shard uint32) {
	l.mu.Lock()
	l.full[shard], l.newFull = true, true
	delete(l.lengths, shard)
	l.mu.Unlock()
	l.wakeUp()
}

// Found sets which replicas are damaged and which sealed shards are empty.
func (l *Link) Found(damaged, empty map[uint32]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newEmpty = l.newEmpty || !maps.Equal(l.empty, empty)
	l.damaged, l.empty = damaged, empty
}

// message returns the next report: all of the state if all is set, else what has changed. With beat it
// includes the health of the replicas.
func (l *Link) message(all, beat bool) *logpb.NodeReport {
	index, _, _ := l.opt.Table.At()
	m := &logpb.NodeReport{Addr: l.opt.Addr, Incarnation: l.opt.Incarnation, Applied: index, Level: l.opt.Level, Zone: l.opt.Zone}
	free, readonly := l.opt.Space()
	m.Readonly, m.FreeBytes = readonly, uint64(free)
	l.mu.Lock()
	defer l.mu.Unlock()
	if all {
		l.reported = map[uint32]health{}
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
func (l *Link) healths() (news []*logpb.ReplicaHealth) {
	for _, r := range l.opt.Replicas() {
		id := r.ID()
		old, was := l.reported[id]
		h, ordered, report := r.Health(old.ordered, l.damaged[id])
		switch {
		case !report && !was:
			continue
		case !report: // sealed, or repaired: reported once more
			delete(l.reported, id)
			h.State = logpb.ReplicaHealth_OK
		default:
			l.reported[id] = health{h.GetState(), h.GetLength(), ordered}
			if was && h.GetState() == old.state && (old.state != logpb.ReplicaHealth_BEHIND || h.GetLength() == old.length) {
				continue
			}
		}
		news = append(news, h)
	}
	return news
}

// Run finds the leader and reports to it until ctx ends. The caller starts it when the node has
// received the metalog: the leader opens shards on every node that reports, and a node that learns
// of a shard only from a snapshot has missed the shard's start. Run returns an error if the node has
// been removed from the cluster.
func (l *Link) Run(ctx context.Context) error {
	hint := ""
	for i := 0; ; i++ {
		addr := hint
		if addr == "" {
			addrs := l.opt.Table.Members().Addresses()
			addr = addrs[i%len(addrs)]
		}
		next, err := l.reportTo(ctx, addr)
		if next == addr {
			next = ""
		}
		hint = next
		if sharedlog.KindOf(err) == sharedlog.KindInvalid {
			return err
		}
		if err != nil {
			l.opt.Logger.Debug("looking for the leader", "node", l.opt.Addr, "tried", addr, "error", err)
		}
		if hint != "" {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
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
func (l *Link) reportTo(ctx context.Context, addr string) (hint string, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := l.opt.Dialer.Open(ctx, addr, "sequencer/node")
	if err != nil {
		return "", err
	}
	if err := st.Hello(l.message(true, true)); err != nil {
		return "", err
	}
	watch := time.AfterFunc(firstReply, cancel)
	defer watch.Stop()
	other := make(chan string, 1) // the leader, if it is another sequencer
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
			l.st, l.received = st, time.Now()
			l.sending.Unlock()
			if !m.GetMe() {
				other <- m.GetAddr()
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
			case hint = <-other:
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

// Forget removes a shard from the reports.
func (l *Link) Forget(shard uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newFull = l.newFull || l.full[shard]
	l.newEmpty = l.newEmpty || l.empty[shard]
	delete(l.full, shard)
	delete(l.empty, shard)
	delete(l.damaged, shard)
	delete(l.lengths, shard)
	delete(l.changed, shard)
	delete(l.reported, shard)
}

// Empty reports whether the node reports that nothing is left in a shard.
func (l *Link) Empty(shard uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.empty[shard]
}
