// Package table is the state of the metalog on a storage node: the shards, the members of the
// cluster, the metadata and the trim points, as of one index. It also knows which trim points all
// cursors of the node have received, since nothing may be deleted before.
package table

import (
	"maps"
	"slices"
	"sync"

	"tailrace.dev/tailrace/internal/follow"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// Table is the state of the metalog, as far as the node has followed it. It is always the state as of
// its index, so it can be written to disk at any time. Its methods may be called on any goroutine.
type Table struct {
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
	members follow.Members // has its own lock
	dirty   bool           // changed since the last checkpoint

	// unannounced holds the previous trim points of tags that have been trimmed, and
	// announcedFloor the previous floor, until all cursors know the new ones. Nothing may be deleted that a cursor
	// would then miss without learning that it was trimmed.
	unannounced    map[sharedlog.Tag]sharedlog.LSN
	announcedFloor uint64
}

// Init replaces the state by a snapshot. Trim points never become lower.
func (t *Table) Init(s *logpb.Snapshot) {
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
	unannounced := t.unannounced
	t.unannounced = map[sharedlog.Tag]sharedlog.LSN{}
	for _, p := range s.GetTrims() {
		tag := sharedlog.Tag(p.GetTag())
		if known, ok := unannounced[tag]; ok {
			t.unannounced[tag] = known
		} else {
			t.unannounced[tag] = before[tag]
		}
		t.trims[tag] = max(before[tag], sharedlog.LSN(p.GetBefore()))
	}
}

// Changed returns what must be written to disk; false means that nothing has changed since the last
// call.
func (t *Table) Changed() (*logpb.Snapshot, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.dirty {
		return nil, false
	}
	t.dirty = false
	return t.snapshotLocked(), true
}

// Snapshot returns the state. The caller must not change the messages in it.
func (t *Table) Snapshot() *logpb.Snapshot {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.snapshotLocked()
}

func (t *Table) snapshotLocked() *logpb.Snapshot {
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

// Unsaved marks the table as changed, because a write failed, or the file is of an earlier index and
// a new replica needs this one.
func (t *Table) Unsaved() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirty = true
}

// Apply applies an event. It returns false for an event that the table already contains: events are
// received again when a replica needs them that is further behind than the table.
func (t *Table) Apply(e *logpb.Event) bool {
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
		if _, ok := t.unannounced[tag]; !ok {
			t.unannounced[tag] = t.trims[tag]
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
				delete(t.unannounced, tag)
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

// Reached records that the metalog was followed up to an index and a tail, without events that
// change the table.
func (t *Table) Reached(index, tail uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.index, t.tail = max(t.index, index), max(t.tail, tail)
}

// At returns the index, the tail, and the number of shards ever opened.
func (t *Table) At() (index, tail, opened uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.index, t.tail, t.opened
}

// Level returns the cluster's feature level, as far as the node knows it.
func (t *Table) Level() uint32 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.level
}

// Metadata returns a copy of the metadata.
func (t *Table) Metadata() map[string][]byte {
	t.mu.RLock()
	defer t.mu.RUnlock()
	m := make(map[string][]byte, len(t.meta))
	for k, v := range t.meta {
		m[k] = v
	}
	return m
}

// Shard returns the description of a shard, nil if the table does not contain it. The caller must
// not change it.
func (t *Table) Shard(id uint32) *logpb.Shard {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.shards[id]
}

// TrimPoint returns a tag's trim point; 0 means that the tag was not trimmed, or only below the
// floor. The client decides what that means for a reader below the floor.
func (t *Table) TrimPoint(tag sharedlog.Tag) sharedlog.LSN {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.trims[tag]
}

// Lowest returns the LSN below which a tag has no records, for cursors that may have missed trims.
func (t *Table) Lowest(tag sharedlog.Tag) sharedlog.LSN {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return max(t.trims[tag], sharedlog.LSN(t.floor))
}

// Forgotten reports whether a shard has been removed from the table because nothing is left in it.
func (t *Table) Forgotten(id uint32) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.shards[id] == nil && uint64(id) <= t.opened
}

// Deletable returns the LSN below which records of a tag may be deleted: the trim point that all
// cursors know.
func (t *Table) Deletable(tag sharedlog.Tag) sharedlog.LSN {
	t.mu.RLock()
	defer t.mu.RUnlock()
	point, ok := t.unannounced[tag]
	if !ok {
		point = t.trims[tag]
	}
	return max(point, sharedlog.LSN(t.announcedFloor))
}

// Announce records that all cursors know all trim points.
func (t *Table) Announce() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.unannounced)
	t.announcedFloor = t.floor
}

// Announced reports whether all cursors know all trims up to an index of the metalog.
func (t *Table) Announced(index uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.index >= index && len(t.unannounced) == 0 && t.announcedFloor == t.floor
}

// InitEmpty sets the state before the node has received anything of the metalog.
func (t *Table) InitEmpty() {
	t.Init(&logpb.Snapshot{Tail: uint64(sharedlog.First)})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = false
}

// Resume returns the index after which the table needs events, and whether it has state at all.
func (t *Table) Resume() (after uint64, known bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.index, t.known
}

// Members returns the sequencers. They have a lock of their own.
func (t *Table) Members() *follow.Members { return &t.members }

// Kept returns the number of records of a sealed shard that were not given up.
func Kept(sh *logpb.Shard) uint64 { return sh.GetLength() - sh.GetLost() }
