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

// table is what the metalog says, as far as this node has followed it: at any moment all
// of it is as of index, so that it can be written down at any moment.
type table struct {
	mu      sync.RWMutex
	known   bool // it began with a snapshot
	index   uint64
	tail    uint64
	shards  map[uint32]*logpb.Shard // whose messages are replaced, never written to
	opened  uint64                  // how many there ever were, of all
	meta    map[string][]byte
	trims   map[sharedlog.Tag]sharedlog.LSN
	floor   uint64 // no record lies below
	level   uint32 // of the cluster's features
	nodes   map[string]*logpb.Node
	members follow.Members // of the sequencers; with a lock of its own
	dirty   bool           // since the last checkpoint

	// untold holds, for tags that have been trimmed, where they began before, and
	// toldFloor the floor before, until all cursors have been told: nothing may be
	// deleted that a cursor would then miss without knowing that it was trimmed.
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

// snapshot returns what is to be written down; false: nothing is new since the last one.
func (t *table) snapshot() (*logpb.Snapshot, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.dirty {
		return nil, false
	}
	t.dirty = false
	return t.all(), true
}

// all returns the table; mu is held.
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

// Metalog returns what the metalog says, as far as this node has followed it: all of it is
// as of the entry Index, also while entries are received again. Index 0: it has heard
// nothing yet. Its messages must not be changed.
func (n *Node) Metalog() *logpb.Snapshot {
	n.table.mu.RLock()
	defer n.table.mu.RUnlock()
	return n.table.all()
}

// unsaved says that what is written down is not enough: the write failed, or it is of an
// earlier index and a new replica needs this one.
func (t *table) unsaved() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirty = true
}

// apply takes an event. It reports false for one that the table has taken before: events
// come again when a replica needs them that is further behind than the table.
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

// features returns the cluster's feature level, as far as it is known.
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

// trimPoint returns where a tag begins; 0: it was not trimmed, or below the floor only.
// What that means to a reader below the floor is for the client to say.
func (t *table) trimPoint(tag sharedlog.Tag) sharedlog.LSN {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.trims[tag]
}

// lowest returns below what a tag has no records, for cursors that may have missed trims.
func (t *table) lowest(tag sharedlog.Tag) sharedlog.LSN {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return max(t.trims[tag], sharedlog.LSN(t.floor))
}

// forgotten reports whether a shard has left the tables: nothing is left in it.
func (t *table) forgotten(id uint32) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.shards[id] == nil && uint64(id) <= t.opened
}

// deletable returns below what records of a tag may be deleted: where it begins, as all
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

// told says that all cursors know of all trim points.
func (t *table) told() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.untold)
	t.toldFloor = t.floor
}

// hasTold reports whether all cursors know of all trims up to an index of the metalog.
func (t *table) hasTold(index uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.index >= index && len(t.untold) == 0 && t.toldFloor == t.floor
}

// aloneAfter is after how long without a message from any sequencer the operator is told:
// twice as long each time, since it can be an outage as well as a wrong address.
const aloneAfter = 2 * time.Second

// followSpread bounds how long a node that hears of another leader goes on following the
// sequencer that it follows.
const followSpread = 200 * time.Millisecond

// follow receives the metalog, from the sequencers' leader if possible.
func (n *Node) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	heard, patience := time.Now(), aloneAfter
	err := follow.Run(contextOf(n.quit, ctx), follow.Options{
		Dialer: n.opt.Dialer, Name: n.opt.Addr, Logger: n.opt.Logger, Spread: followSpread,
		Sequencers: n.table.members.Addresses,
		Request:    n.request,
		Insist:     func() bool { return len(n.request().GetShards()) > 0 },
		Take: func(m *logpb.FollowReply) error {
			if err := n.take(m); err != nil {
				return err
			}
			n.heard.Do(func() { close(n.hears) })
			return nil
		},
		Trouble: func(addr string, err error) {
			switch {
			case err == nil:
				heard, patience = time.Now(), aloneAfter
			case time.Since(heard) >= patience:
				patience *= 2
				n.opt.Logger.Warn("no sequencer is heard; are their addresses right (--sequencers), and do they run?",
					"node", n.opt.Addr, "sequencers", n.table.members.Addresses(), "tried", addr, "error", err)
			}
		},
	})
	if !errors.Is(err, context.Canceled) {
		n.stop(err)
	}
}

// request says from where on the node needs the metalog.
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

// contextOf returns a context that ends when quit is closed, or with ctx.
func contextOf(quit <-chan struct{}, ctx context.Context) context.Context {
	c, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-quit:
		case <-ctx.Done():
		}
		cancel()
	}()
	return c
}

// resume returns the index behind which events are needed: what the replica that is
// furthest behind has; fresh: this node knows nothing yet.
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

// take takes what a sequencer says of the metalog; of the following goroutine.
func (n *Node) take(m *logpb.FollowReply) error {
	if s := m.GetSnapshot(); s != nil {
		return n.restart(s)
	}
	trims := false
	known, _, _ := n.table.at()
	for _, e := range m.GetEvents() {
		// Of what the table has taken before it has made replicas, too.
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
		if f := e.GetForgot(); f != nil { // cursors have been told of the trims before
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

// mayDelete has the node look for segments in which nothing is left.
func (n *Node) mayDelete() {
	select {
	case n.trimmed <- struct{}{}:
	default:
	}
}

// restart takes a snapshot in place of the events behind what this node has: its
// unfinished replicas have lost the thread.
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
			// Nothing of it is ordered, so nothing was missed that decides about its
			// groups: it begins under the metadata as of here. Without that a shard that
			// was opened just before would be nobody's, and its primary alive.
			r, err := n.create(sh, s.GetIndex())
			if err != nil {
				return err
			}
			n.add(r)
			n.share()
		case r == nil && mine:
			n.opt.Logger.Warn("a replica begins without its past; it will be copied when the shard is sealed", "node", n.opt.Addr, "shard", sh.GetId())
			r, err := n.stale(sh)
			if err != nil {
				return err
			}
			n.add(r)
		case r != nil:
			if at, unfinished := r.followed(); unfinished && at < s.GetIndex() {
				if r.primary && !sh.GetSealed() {
					return fmt.Errorf("the primary of shard %d has followed the metalog to %d only, and it goes on at %d", r.id, at, s.GetIndex())
				}
				n.opt.Logger.Warn("a replica has lost the thread; it will be copied when the shard is sealed", "node", n.opt.Addr, "shard", sh.GetId(), "at", at, "snapshot", s.GetIndex())
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

// deleteForeign deletes what the disk holds of shards that are not placed here.
func (n *Node) deleteForeign() error {
	var ids []segment.ID
	for _, info := range n.store.Segments() {
		if n.replica(info.ID.Shard) == nil && info.State != segment.StateDamaged {
			ids = append(ids, info.ID)
		}
	}
	return n.store.Delete(ids...)
}

// place sees to it that this node has a copy of a sealed shard, if it is to.
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
