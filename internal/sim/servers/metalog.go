package servers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/follow"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// metalog holds the metalog that the sequencers have shown, each fact with the range of entries in
// which it was true. Storage nodes are compared with it.
type metalog struct {
	w         *World
	cancel    context.CancelFunc
	observers sync.WaitGroup

	mu     sync.Mutex
	spans  []span // ranges of known entries, ascending
	shards map[uint32]versions[*logpb.Shard]
	keys   map[string]versions[string]
	trims  map[string]versions[uint64]
	floor  versions[uint64]
	ahead  []observed // at entries that the sequencers have not shown yet
}

type span struct{ from, to uint64 }

// versions are the values that something has had, with the entries that set them. The zero value of
// T means that it does not exist.
type versions[T any] []version[T]

type version[T any] struct {
	from  uint64
	value T
}

func (v versions[T]) at(index uint64) (value T) {
	for _, x := range slices.Backward(v) {
		if x.from <= index {
			return x.value
		}
	}
	return value
}

// observed is a node's state of the metalog.
type observed struct {
	node string
	says *logpb.Snapshot
}

// mostAhead bounds the number of observations that wait for the sequencers.
const mostAhead = 256

// observeEvery is the interval at which the storage nodes are compared with the metalog.
const observeEvery = 10 * time.Millisecond

// start follows the metalog and observes the nodes until stop.
func (m *metalog) start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.observers.Go(func() { m.follow(ctx) })
	m.observers.Go(func() { m.observe(ctx) })
}

func (m *metalog) stop() { m.cancel() }

// follow follows the metalog like a storage node, over links without faults.
func (m *metalog) follow(ctx context.Context) {
	h := m.w.net.Start("observer", transport.Options{Cluster: cluster})
	defer h.Kill(false)
	var names []string
	for _, q := range m.w.sequencers {
		names = append(names, q.name)
	}
	err := follow.Run(ctx, follow.Options{
		Dialer: h.Dialer(), Name: "observer", Logger: m.w.story.logger("observer"),
		Sequencers: func() []string { return names },
		Request: func() *logpb.FollowRequest {
			known := m.known()
			return &logpb.FollowRequest{After: known, Snapshot: known == 0, Node: "observer"}
		},
		Take: func(r *logpb.FollowReply) error { m.take(r); return nil },
	})
	if !errors.Is(err, context.Canceled) {
		m.w.fail("metalog", "the sequencers do not show the metalog any more: %v", err)
	}
}

// known returns the entry up to which the metalog is known.
func (m *metalog) known() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.spans) == 0 {
		return 0
	}
	return m.spans[len(m.spans)-1].to
}

// take takes a message of a sequencer and checks the observations that waited for it.
func (m *metalog) take(r *logpb.FollowReply) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := r.GetSnapshot(); s != nil {
		m.restart(s)
	}
	last := &m.spans[len(m.spans)-1]
	for _, e := range r.GetEvents() {
		if e.GetIndex() > last.to {
			m.apply(e)
			last.to = e.GetIndex()
		}
	}
	last.to = max(last.to, r.GetIndex())
	ahead := m.ahead
	m.ahead = nil
	for _, o := range ahead {
		m.judge(o)
	}
}

// restart takes a snapshot in place of entries, which stay unknown. Called with mu held.
func (m *metalog) restart(s *logpb.Snapshot) {
	at := s.GetIndex()
	if n := len(m.spans); n > 0 && at <= m.spans[n-1].to {
		return
	}
	m.spans = append(m.spans, span{at, at})
	shards, keys, trims := tables(s)
	m.shards = replaced(m.shards, shards, at)
	m.keys = replaced(m.keys, keys, at)
	m.trims = replaced(m.trims, trims, at)
	m.floor = append(m.floor, version[uint64]{at, s.GetFloor()})
}

// replaced returns versions that have the present values from an entry on.
func replaced[K comparable, T any](all map[K]versions[T], present map[K]T, at uint64) map[K]versions[T] {
	if all == nil {
		all = map[K]versions[T]{}
	}
	var none T
	for k := range all {
		if _, ok := present[k]; !ok {
			all[k] = append(all[k], version[T]{at, none})
		}
	}
	for k, v := range present {
		all[k] = append(all[k], version[T]{at, v})
	}
	return all
}

// tables returns the compared parts of a snapshot.
func tables(s *logpb.Snapshot) (shards map[uint32]*logpb.Shard, keys map[string]string, trims map[string]uint64) {
	shards, keys, trims = map[uint32]*logpb.Shard{}, map[string]string{}, map[string]uint64{}
	for _, sh := range s.GetShards() {
		shards[sh.GetId()] = sh
	}
	for _, p := range s.GetMetadata() {
		keys[p.GetKey()] = string(p.GetValue())
	}
	for _, p := range s.GetTrims() {
		trims[p.GetTag()] = p.GetBefore()
	}
	return shards, keys, trims
}

// apply takes an event. Called with mu held.
func (m *metalog) apply(e *logpb.Event) {
	at := e.GetIndex()
	shard := func(sh *logpb.Shard) {
		m.shards[sh.GetId()] = append(m.shards[sh.GetId()], version[*logpb.Shard]{at, sh})
	}
	switch w := e.GetWhat().(type) {
	case *logpb.Event_Change:
		k := w.Change.GetKey()
		m.keys[k] = append(m.keys[k], version[string]{at, string(w.Change.GetValue())})
	case *logpb.Event_Opened:
		shard(w.Opened)
	case *logpb.Event_Sealed:
		shard(w.Sealed)
	case *logpb.Event_Placed:
		shard(w.Placed)
	case *logpb.Event_Rescued:
		shard(w.Rescued)
	case *logpb.Event_Trim:
		tag := w.Trim.GetTag()
		m.trims[tag] = append(m.trims[tag], version[uint64]{at, max(m.trims[tag].at(at), w.Trim.GetBefore())})
	case *logpb.Event_Forgot:
		for _, id := range w.Forgot.GetShards() {
			m.shards[id] = append(m.shards[id], version[*logpb.Shard]{at, nil})
		}
		floor := max(m.floor.at(at), w.Forgot.GetFloor())
		m.floor = append(m.floor, version[uint64]{at, floor})
		for tag, v := range m.trims {
			if v.at(at) <= floor {
				m.trims[tag] = append(v, version[uint64]{at, 0})
			}
		}
	}
}

// observe repeatedly reads the nodes' states.
func (m *metalog) observe(ctx context.Context) {
	for ctx.Err() == nil {
		for _, n := range m.w.nodes {
			n.mu.Lock()
			s := n.server
			n.mu.Unlock()
			if node, ok := s.(interface{ Metalog() *logpb.Snapshot }); ok {
				o := observed{n.name, node.Metalog()}
				m.mu.Lock()
				m.judge(o)
				m.mu.Unlock()
			}
		}
		wait(observeEvery, ctx, ctx)
	}
}

// judge compares a node's state with the metalog as of the same entry, once that is known. Called
// with mu held.
func (m *metalog) judge(o observed) {
	at := o.says.GetIndex()
	if at == 0 {
		return
	}
	if len(m.spans) == 0 || at > m.spans[len(m.spans)-1].to {
		if m.ahead = append(m.ahead, o); len(m.ahead) > mostAhead {
			m.ahead = m.ahead[1:]
		}
		return
	}
	if !slices.ContainsFunc(m.spans, func(s span) bool { return s.from <= at && at <= s.to }) {
		m.w.story.count("a node's metalog is of an entry that is not known")
		return
	}
	m.w.story.count("a node's metalog is compared")
	if d := m.differs(o.says); d != "" {
		m.w.fail("metalog", "%s has followed the metalog to entry %d and has %s", o.node, at, d)
	}
}

// differs returns how a node's state differs from the metalog as of its entry. Called with mu held.
func (m *metalog) differs(s *logpb.Snapshot) string {
	at := s.GetIndex()
	shards, keys, trims := tables(s)
	for _, k := range slices.Sorted(maps.Keys(m.keys)) {
		if is, want := keys[k], m.keys[k].at(at); is != want {
			return fmt.Sprintf("%s = %q, which is %q", k, is, want)
		}
		delete(keys, k)
	}
	for _, id := range slices.Sorted(maps.Keys(m.shards)) {
		if is, want := shards[id], m.shards[id].at(at); !same(is, want) {
			return fmt.Sprintf("shard %d as (%v), which is (%v)", id, is, want)
		}
		delete(shards, id)
	}
	for _, tag := range slices.Sorted(maps.Keys(m.trims)) {
		if is, want := trims[tag], m.trims[tag].at(at); is != want {
			return fmt.Sprintf("%s trimmed below %d, which is trimmed below %d", tag, is, want)
		}
		delete(trims, tag)
	}
	if is, want := s.GetFloor(), m.floor.at(at); is != want {
		return fmt.Sprintf("floor %d, which is %d", is, want)
	}
	if len(keys)+len(shards)+len(trims) > 0 {
		return fmt.Sprintf("what no client has set: keys %v, shards %v, trims %v", keys, shards, trims)
	}
	return ""
}

// same compares what is known of a shard. Nodes do not follow the length of an open one.
func same(a, b *logpb.Shard) bool {
	switch {
	case a == nil || b == nil:
		return a == b
	case a == b:
		return true
	case a.GetSealed() && b.GetSealed():
		return proto.Equal(a, b)
	}
	return a.GetSealed() == b.GetSealed() && a.GetIncarnation() == b.GetIncarnation() && a.GetOpened() == b.GetOpened() && slices.Equal(a.GetAddrs(), b.GetAddrs())
}
