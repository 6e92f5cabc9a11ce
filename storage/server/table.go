package server

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
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
)

// table is the state of the metalog, as far as this node has followed it. It is always the state as
// of index, so it can be written to disk at any time.
type table struct {
	mu      sync.RWMutex
	known   bool // it has been initialized from a snapshot
	index   uint64
	tail    uint64
	shards  map[uint32]*logpb.Shard // messages are replaced, never changed
	opened  uint64                  // number of shards ever opened, in the whole cluster
	meta    map[string][]byte
	trims   map[sharedlog.Tag]sharedlog.LSN
	floor   uint64 // no record exists below
	level   uint32 // the cluster's feature level
	nodes   map[string]*logpb.Node
	members follow.Members // the sequencers; has its own lock
	dirty   bool           // changed since the last checkpoint

	// untold holds the previous trim points of tags that have been trimmed, and toldFloor the
	// previous floor, until all cursors know the new ones. Nothing may be deleted that a cursor
	// would then miss without learning that it was trimmed.
	untold    map[sharedlog.Tag]sharedlog.LSN
	toldFloor uint64
}

func (t *table) init(s *logpb.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = true
	t.index, t.tail, t.opened, t.dirty = s.GetIndex(), s.GetTail(), s.GetOpened(), true
	t.floor, t.level = s.GetFloor(), s.GetLevel()
	t.nodes = map[string]*logpb.Node{}
	before := t.trims
	t.shards, t.meta, t.trims = map[uint32]*logpb.Shard{}, map[string][]byte{}, map[sharedlog.Tag]sharedlog.LSN{}
	for _, sh := range s.GetShards() {
		t.shards[sh.GetId()] = sh
		t.opened = max(t.opened, uint64(sh.GetId()))
	}
	for _, m := range s.GetNodes() {
		t.nodes[m.GetAddr()] = m
	}
	for _, m := range s.GetSequencers() {
		t.members.Take(m)
	}
	for _, p := range s.GetMetadata() {
		t.meta[p.GetKey()] = p.GetValue()
	}
	t.untold = map[sharedlog.Tag]sharedlog.LSN{}
	for _, p := range s.GetTrims() {
		tag := sharedlog.Tag(p.GetTag())
		t.untold[tag] = before[tag]
		t.trims[tag] = max(before[tag], sharedlog.LSN(p.GetBefore()))
	}
}

// snapshot returns what must be written to disk; false means that nothing has changed since the
// last call.
func (t *table) snapshot() (*logpb.Snapshot, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.dirty {
		return nil, false
	}
	t.dirty = false
	return t.all(), true
}

// all returns the table. The caller holds mu.
func (t *table) all() *logpb.Snapshot {
	s := &logpb.Snapshot{Index: t.index, Tail: t.tail, Opened: t.opened, Floor: t.floor, Level: t.level}
	for _, id := range slices.Sorted(maps.Keys(t.shards)) {
		s.Shards = append(s.Shards, t.shards[id])
	}
	for _, m := range t.nodes {
		s.Nodes = append(s.Nodes, m)
	}
	s.Sequencers = t.members.Known()
	for k, v := range t.meta {
		s.Metadata = append(s.Metadata, &logpb.Pair{Key: k, Value: v})
	}
	for k, v := range t.trims {
		s.Trims = append(s.Trims, &logpb.TrimPoint{Tag: string(k), Before: uint64(v)})
	}
	return s
}

// Metalog returns the state of the metalog as of the entry Index, as far as this node has followed
// it; also while the node receives entries again. Index 0 means that the node has received nothing
// yet. The caller must not change the messages.
func (n *Node) Metalog() *logpb.Snapshot {
	n.table.mu.RLock()
	defer n.table.mu.RUnlock()
	return n.table.all()
}

// unsaved marks the table as changed: a write failed, or the file is of an earlier index and a new
// replica needs this one.
func (t *table) unsaved() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirty = true
}

// apply applies an event. It returns false for an event that the table already contains: events are
// received again when a replica needs them that is further behind than the table.
func (t *table) apply(e *logpb.Event) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.GetIndex() <= t.index {
		return false
	}
	t.index, t.tail = e.GetIndex(), max(t.tail, e.GetPlace())
	switch w := e.GetWhat().(type) {
	case *logpb.Event_Change:
		t.dirty = true
		if len(w.Change.GetValue()) == 0 {
			delete(t.meta, w.Change.GetKey())
		} else {
			t.meta[w.Change.GetKey()] = w.Change.GetValue()
		}
	case *logpb.Event_Opened:
		t.dirty = true
		t.shards[w.Opened.GetId()] = w.Opened
		t.opened = max(t.opened, uint64(w.Opened.GetId()))
	case *logpb.Event_Sealed:
		t.dirty = true
		t.shards[w.Sealed.GetId()] = w.Sealed
	case *logpb.Event_Placed:
		t.dirty = true
		t.shards[w.Placed.GetId()] = w.Placed
	case *logpb.Event_Trim:
		t.dirty = true
		tag := sharedlog.Tag(w.Trim.GetTag())
		if _, ok := t.untold[tag]; !ok {
			t.untold[tag] = t.trims[tag]
		}
		t.trims[tag] = max(t.trims[tag], sharedlog.LSN(w.Trim.GetBefore()))
	case *logpb.Event_Rescued:
		t.dirty = true
		t.shards[w.Rescued.GetId()] = w.Rescued
	case *logpb.Event_Forgot:
		t.dirty = true
		for _, id := range w.Forgot.GetShards() {
			delete(t.shards, id)
		}
		t.floor = max(t.floor, w.Forgot.GetFloor())
		for tag, before := range t.trims {
			if before <= sharedlog.LSN(t.floor) {
				delete(t.trims, tag)
				delete(t.untold, tag)
			}
		}
	case *logpb.Event_Node:
		t.dirty = true
		if w.Node.GetState() == logpb.Node_ACTIVE {
			delete(t.nodes, w.Node.GetAddr())
		} else {
			t.nodes[w.Node.GetAddr()] = w.Node
		}
	case *logpb.Event_Level:
		t.dirty, t.level = true, w.Level
	case *logpb.Event_Sequencer:
		t.dirty = true
		t.members.Take(w.Sequencer)
	}
	return true
}

func (t *table) reached(index, tail uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.index, t.tail = max(t.index, index), max(t.tail, tail)
}

func (t *table) at() (index, tail, opened uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.index, t.tail, t.opened
}

// features returns the cluster's feature level, as far as this node knows it.
func (t *table) features() uint32 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.level
}

func (t *table) metadata() map[string][]byte {
	t.mu.RLock()
	defer t.mu.RUnlock()
	m := make(map[string][]byte, len(t.meta))
	for k, v := range t.meta {
		m[k] = v
	}
	return m
}

func (t *table) shard(id uint32) *logpb.Shard {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.shards[id]
}

// trimPoint returns a tag's trim point; 0 means that the tag was not trimmed, or only below the
// floor. The client decides what that means for a reader below the floor.
func (t *table) trimPoint(tag sharedlog.Tag) sharedlog.LSN {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.trims[tag]
}

// lowest returns the LSN below which a tag has no records, for cursors that may have missed trims.
func (t *table) lowest(tag sharedlog.Tag) sharedlog.LSN {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return max(t.trims[tag], sharedlog.LSN(t.floor))
}

// forgotten reports whether a shard has been removed from the table because nothing is left in it.
func (t *table) forgotten(id uint32) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.shards[id] == nil && uint64(id) <= t.opened
}

// deletable returns the LSN below which records of a tag may be deleted: the trim point that all
// cursors know.
func (t *table) deletable(tag sharedlog.Tag) sharedlog.LSN {
	t.mu.RLock()
	defer t.mu.RUnlock()
	point, ok := t.untold[tag]
	if !ok {
		point = t.trims[tag]
	}
	return max(point, sharedlog.LSN(t.toldFloor))
}

// told records that all cursors know all trim points.
func (t *table) told() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.untold)
	t.toldFloor = t.floor
}

// hasTold reports whether all cursors know all trims up to an index of the metalog.
func (t *table) hasTold(index uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.index >= index && len(t.untold) == 0 && t.toldFloor == t.floor
}

// aloneAfter is how long the node waits for a message of any sequencer before it logs a warning.
// The time doubles with each warning, since the cause can be an outage as well as a wrong address.
const aloneAfter = 2 * time.Second

// followSpread bounds how long a node that learns of another leader keeps following the sequencer
// that it follows.
const followSpread = 200 * time.Millisecond

// follow receives the metalog, from the leader of the sequencers if possible.
func (n *Node) follow() {
	ctx, cancel := n.untilQuit()
	defer cancel()
	heard, patience := time.Now(), aloneAfter
	err := follow.Run(ctx, follow.Options{
		Dialer: n.opt.Dialer, Name: n.opt.Addr, Logger: n.opt.Logger, Spread: followSpread,
		Sequencers: n.table.members.Addresses,
		Request:    n.request,
		Insist:     func() bool { return len(n.request().GetShards()) > 0 },
		Take: func(m *logpb.FollowReply) error {
			if err := n.take(m); err != nil {
				return err
			}
			n.heard.Do(func() { close(n.following) })
			return nil
		},
		Trouble: func(addr string, err error) {
			switch {
			case err == nil:
				heard, patience = time.Now(), aloneAfter
			case time.Since(heard) >= patience:
				patience *= 2
				n.opt.Logger.Warn("no sequencer responds; check their addresses (--sequencers), and that they are running",
					"node", n.opt.Addr, "sequencers", n.table.members.Addresses(), "tried", addr, "error", err)
			}
		},
	})
	if !errors.Is(err, context.Canceled) {
		n.stop(err)
	}
}

// request returns a request for the part of the metalog that the node needs.
func (n *Node) request() *logpb.FollowRequest {
	after, fresh := n.resume()
	req := &logpb.FollowRequest{After: after, Snapshot: fresh, Node: n.opt.Addr, Stores: n.table.members.Stores()}
	for _, r := range n.all() {
		if _, unfinished := r.followed(); unfinished {
			req.Shards = append(req.Shards, r.id)
		}
	}
	if index, tail, _ := n.table.at(); index == after {
		req.Tail = tail
	}
	return req
}

// untilQuit returns a context that ends when the node starts to stop, or when cancel is called. The
// caller must call cancel.
func (n *Node) untilQuit() (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(context.Background())
	go func() {
		select {
		case <-n.quit:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, cancel
}

// resume returns the index after which the node needs events: the one that its furthest-behind
// replica has reached. fresh reports that this node has no state yet.
func (n *Node) resume() (after uint64, fresh bool) {
	n.table.mu.RLock()
	after, fresh = n.table.index, !n.table.known
	n.table.mu.RUnlock()
	for _, r := range n.all() {
		if at, unfinished := r.followed(); unfinished {
			after = min(after, at)
		}
	}
	return after, fresh
}

// take applies a message of the metalog. Only the goroutine of follow calls it.
func (n *Node) take(m *logpb.FollowReply) error {
	if s := m.GetSnapshot(); s != nil {
		return n.restart(s)
	}
	trims := false
	known, _, _ := n.table.at()
	for _, e := range m.GetEvents() {
		// Also for an event that the table already had before its replicas were created.
		if op := e.GetOpened(); op != nil && e.GetIndex() > known && slices.Contains(op.GetAddrs(), n.opt.Addr) && n.replica(op.GetId()) == nil {
			r, err := n.create(op, e.GetIndex())
			if err != nil {
				return err
			}
			n.add(r)
			n.share()
		}
		if !n.table.apply(e) {
			continue
		}
		if pl := e.GetPlaced(); pl != nil {
			if err := n.place(pl); err != nil {
				return err
			}
		}
		if tr := e.GetTrim(); tr != nil {
			trims = true
			for _, r := range n.all() {
				r.hub.Trim(sharedlog.Tag(tr.GetTag()), sharedlog.LSN(tr.GetBefore()))
			}
			n.table.told()
		}
		if f := e.GetForgot(); f != nil { // cursors know the trims already
			n.table.told()
			n.forget(f.GetShards())
		}
	}
	n.table.reached(m.GetIndex(), m.GetTail())
	_, _, opened := n.table.at()
	for _, r := range n.all() {
		r.advance(m.GetEvents(), m.GetIndex(), m.GetTail(), opened)
	}
	if trims {
		n.mayDelete()
	}
	return nil
}

// mayDelete makes keep look for segments in which nothing is left.
func (n *Node) mayDelete() {
	select {
	case n.trimmed <- struct{}{}:
	default:
	}
}

// restart applies a snapshot that replaces events which this node has missed. Its unfinished
// replicas become stale.
func (n *Node) restart(s *logpb.Snapshot) error {
	n.table.init(s)
	for _, r := range n.all() {
		r.hub.TrimAll(n.table.lowest)
	}
	n.table.told()
	n.mayDelete()
	var gone []uint32
	for _, r := range n.all() {
		if n.table.forgotten(r.id) {
			gone = append(gone, r.id)
		}
	}
	n.forget(gone)
	for _, sh := range s.GetShards() {
		r := n.replica(sh.GetId())
		mine := slices.Contains(sh.GetAddrs(), n.opt.Addr)
		switch {
		case r == nil && mine && !sh.GetSealed() && sh.GetLength() == 0:
			// None of its records is ordered, so this node missed nothing that decides about its
			// groups: the replica starts with the current metadata. Otherwise a shard that was
			// opened just before would have no primary although the process is alive.
			r, err := n.create(sh, s.GetIndex())
			if err != nil {
				return err
			}
			n.add(r)
			n.share()
		case r == nil && mine:
			n.opt.Logger.Warn("replica missed the start of its shard; it will be copied once the shard is sealed", "node", n.opt.Addr, "shard", sh.GetId())
			r, err := n.stale(sh)
			if err != nil {
				return err
			}
			n.add(r)
		case r != nil:
			if at, unfinished := r.followed(); unfinished && at < s.GetIndex() {
				if r.primary && !sh.GetSealed() {
					return fmt.Errorf("the primary of shard %d has followed the metalog to %d only, and it continues with a snapshot at %d", r.id, at, s.GetIndex())
				}
				n.opt.Logger.Warn("replica fell behind the metalog; it will be copied once the shard is sealed", "node", n.opt.Addr, "shard", sh.GetId(), "at", at, "snapshot", s.GetIndex())
				r.lose(proto.CloneOf(sh))
			} else if sh.GetLost() > 0 {
				r.put(item{call: func() {
					if r.core.Phase() == storage.PhaseFull {
						r.rescue(sh)
					}
				}})
			}
		}
	}
	_, _, opened := n.table.at()
	for _, r := range n.all() {
		r.advance(nil, s.GetIndex(), s.GetTail(), opened)
	}
	return n.deleteForeign()
}

// deleteForeign deletes segments of shards that are not placed on this node.
func (n *Node) deleteForeign() error {
	var ids []segment.ID
	for _, info := range n.store.Segments() {
		if n.replica(info.ID.Shard) == nil && info.State != segment.StateDamaged {
			ids = append(ids, info.ID)
		}
	}
	return n.store.Delete(ids...)
}

// place creates a replica of a sealed shard if the shard has been placed on this node.
func (n *Node) place(sh *logpb.Shard) error {
	if !slices.Contains(sh.GetAddrs(), n.opt.Addr) || n.replica(sh.GetId()) != nil {
		return nil
	}
	r, err := n.stale(sh)
	if err != nil {
		return err
	}
	n.add(r)
	return nil
}
