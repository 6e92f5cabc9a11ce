package sequencer

import (
	"bytes"
	"cmp"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// Shard is the description of a shard in the metalog.
type Shard struct {
	ID          ShardID
	Incarnation uint64
	Addrs       [][]byte
	Opened      sharedlog.LSN // place
	Length      uint64        // records ordered
	Lost        uint64        // how many of the newest are lost forever (by a rescue)
	Sealed      bool
	SealedAt    sharedlog.LSN // place, when Sealed
}

// State is the deterministic result of a prefix of the metalog. The zero State
// is not usable; see NewState and RestoreState.
type State struct {
	applied    uint64 // number of entries
	tail       sharedlog.LSN
	generation uint64
	level      uint32
	opened     uint64        // number of shards ever opened; the id of the newest
	floor      sharedlog.LSN // no record is below
	shards     []Shard       // by id, without forgotten ones
	meta       map[string][]byte
	trims      map[sharedlog.Tag]sharedlog.LSN // Invariant: none at or below floor
	nodes      map[string]NodeState            // without active ones
	sequencers []Sequencer                     // by ID, removed ones included
	metaBytes  int                             // size of keys and values
	owned      map[string]int                  // size of metadata by owner (sharedlog.Owner)
	trimBytes  int                             // size of tags and trim points
	runs       []Run                           // of the last Effect, reused
}

// Run is the part of a cut that concerns one shard: positions From … To-1 of its
// sublog have the LSNs First, First+1, …
type Run struct {
	Shard    ShardID
	From, To uint64
	First    sharedlog.LSN
}

// Effect is the effect of one entry. Only the fields for the entry's kind are meaningful.
type Effect struct {
	Index uint64 // of the entry, from 1
	Kind  Kind
	// Place is the tail before the entry; for a repeated seal, the place of the first one.
	Place sharedlog.LSN
	// OK is false if the entry was refused and changed nothing: a change whose key has another
	// value than Old, a seal of an unknown shard, a trim point above the tail, a place of an open
	// shard (the replicas of an open shard are never replaced: seal it and open another one), a
	// rescue that loses nothing or of an open shard, a forget of an open shard or with a floor
	// above the tail, a level below the current one, a sequencer that contradicts what is known of
	// it, and any entry of a level that the cluster has not reached.
	OK bool
	// Runs (cut) is valid until the next Apply.
	Runs []Run
	// Key and Value (change) are the key and its value after the entry. Value must not be changed.
	Key   string
	Value []byte
	// Shard is the shard that was opened, sealed, placed or rescued. Info is its description as of
	// the entry; later entries do not change it.
	Shard ShardID
	Info  Shard
	// Tag and Before (trim) are the tag and its trim point after the entry.
	Tag    sharedlog.Tag
	Before sharedlog.LSN
	// Forgotten (forget) holds the shards that were removed from the tables, Floor the floor after
	// the entry. Forgotten must not be changed.
	Forgotten []ShardID
	Floor     sharedlog.LSN
	Level     uint32    // (level) after the entry
	Node      Node      // (node) after the entry
	Sequencer Sequencer // (sequencer) after the entry
}

// NewState returns the state of an empty metalog, at this program's level.
func NewState() *State { return NewStateAt(Level) }

// NewStateAt returns the state of an empty metalog at a level that the other programs of the
// cluster support.
func NewStateAt(level uint32) *State {
	return &State{
		tail: sharedlog.First, level: level, floor: sharedlog.First,
		meta: map[string][]byte{}, owned: map[string]int{}, trims: map[sharedlog.Tag]sharedlog.LSN{}, nodes: map[string]NodeState{},
	}
}

// Applied returns the number of applied entries: the index of the last one.
func (s *State) Applied() uint64 { return s.applied }

// Tail returns the next LSN.
func (s *State) Tail() sharedlog.LSN { return s.tail }

// Generation returns how often the order has continued after a power failure.
func (s *State) Generation() uint64 { return s.generation }

// Value returns the value of a metadata key, nil if absent. The caller must not change it.
func (s *State) Value(key string) []byte { return s.meta[key] }

// Metadata calls f for each key and value, in no particular order.
func (s *State) Metadata(f func(key string, value []byte)) {
	for k, v := range s.meta {
		f(k, v)
	}
}

// TrimPoint returns the first LSN of tag that was not trimmed; 0 if the tag was never trimmed.
func (s *State) TrimPoint(tag sharedlog.Tag) sharedlog.LSN { return s.trims[tag] }

// TrimPoints calls f for each tag that was trimmed, in no particular order.
func (s *State) TrimPoints(f func(tag sharedlog.Tag, before sharedlog.LSN)) {
	for t, before := range s.trims {
		f(t, before)
	}
}

// Shards returns all shards that were not forgotten, ids ascending; read only, valid until the next
// Apply.
func (s *State) Shards() []Shard { return s.shards }

// Shard returns the description of a shard, nil if it was never opened or was forgotten; read only,
// valid until the next Apply.
func (s *State) Shard(id ShardID) *Shard { return s.shard(id) }

// Opened returns the number of shards ever opened: the id of the newest.
func (s *State) Opened() uint64 { return s.opened }

// Floor returns the LSN below which no record exists any more.
func (s *State) Floor() sharedlog.LSN { return s.floor }

// Level returns the feature level that the cluster has reached.
func (s *State) Level() uint32 { return s.level }

// Weight is the size of the tables that grow with use.
type Weight struct {
	Keys, KeyBytes   int // metadata: keys, and bytes of keys and values
	Trims, TrimBytes int // trim points: tags, and bytes of tags and points
	Shards           int
}

// Weight returns the size of the tables.
func (s *State) Weight() Weight {
	return Weight{Keys: len(s.meta), KeyBytes: s.metaBytes, Trims: len(s.trims), TrimBytes: s.trimBytes, Shards: len(s.shards)}
}

// Apply applies the next entry of the metalog. It is total: an entry that is refused changes
// nothing, on every sequencer alike, and its effect has OK unset.
func (s *State) Apply(e Entry) Effect {
	s.applied++
	ef := Effect{Index: s.applied, Kind: e.Kind, Place: s.tail}
	if e.Kind.Level() > s.level && e.Kind != KindLevel {
		return ef
	}
	switch e.Kind {
	case KindCut:
		ef.OK, ef.Runs = true, s.cut(e.Cut)
	case KindChange:
		ef.Key = e.Key
		if ef.OK = bytes.Equal(s.meta[e.Key], e.Old); ef.OK {
			s.set(e.Key, e.New)
		}
		ef.Value = s.meta[e.Key]
	case KindOpen:
		s.opened++
		ef.OK, ef.Shard = true, ShardID(s.opened)
		ef.Info = Shard{ID: ef.Shard, Incarnation: e.Incarnation, Addrs: e.Addrs, Opened: s.tail}
		s.shards = append(s.shards, ef.Info)
	case KindSeal:
		ef.Shard = e.Shard
		if sh := s.shard(e.Shard); sh != nil {
			if !sh.Sealed {
				sh.Sealed, sh.SealedAt = true, s.tail
			}
			ef.OK, ef.Place, ef.Info = true, sh.SealedAt, *sh
		}
	case KindTrim:
		ef.Tag = e.Tag
		if ef.OK = e.Before <= s.tail; ef.OK {
			s.trim(e.Tag, e.Before)
		}
		ef.Before = s.trims[e.Tag]
	case KindGeneration:
		ef.OK = true
		s.generation++
	case KindPlace:
		ef.Shard = e.Shard
		sh := s.shard(e.Shard)
		if ef.OK = sh != nil && sh.Sealed; ef.OK {
			sh.Addrs = e.Addrs
			ef.Info = *sh
		}
	case KindRescue:
		ef.Shard = e.Shard
		sh := s.shard(e.Shard)
		if ef.OK = sh != nil && sh.Sealed && e.Length < sh.Length-sh.Lost; ef.OK {
			sh.Lost = sh.Length - e.Length
			ef.Info = *sh
		}
	case KindForget:
		ef.Forgotten, ef.OK = s.forget(e.Shards, e.Floor)
		ef.Floor = s.floor
	case KindLevel:
		if ef.OK = e.Level >= s.level; ef.OK {
			s.level = e.Level
		}
		ef.Level = s.level
	case KindNode:
		ef.OK = s.setNode(e.Node)
		ef.Node = Node{Addr: e.Node.Addr, State: s.nodes[e.Node.Addr]}
	case KindSequencer:
		ef.Sequencer, ef.OK = s.setSequencer(e.Sequencer)
	}
	return ef
}

// set sets a metadata key, or deletes it if the value is empty.
func (s *State) set(key string, value []byte) {
	if old, ok := s.meta[key]; ok {
		s.weigh(key, -len(key)-len(old))
	}
	if len(value) == 0 {
		delete(s.meta, key)
		return
	}
	s.meta[key] = value
	s.weigh(key, len(key)+len(value))
}

func (s *State) weigh(key string, bytes int) {
	owner := sharedlog.Owner(key)
	s.metaBytes += bytes
	if s.owned[owner] += bytes; s.owned[owner] == 0 {
		delete(s.owned, owner)
	}
}

// Owned returns the size of an owner's metadata in bytes (sharedlog.Owner).
func (s *State) Owned(owner string) int { return s.owned[owner] }

// pointBytes is the accounted size of a trim point's LSN.
const pointBytes = 8

// trim raises a tag's trim point. A trim point at or below the floor has no effect.
func (s *State) trim(tag sharedlog.Tag, before sharedlog.LSN) {
	old := s.trims[tag]
	if before <= old || before <= s.floor {
		return
	}
	if old == 0 {
		s.trimBytes += len(tag) + pointBytes
	}
	s.trims[tag] = before
}

// forget removes shards in which nothing is left, and raises the floor. Shards that were forgotten
// before are ignored: a leader that does not know the outcome proposes the entry again.
func (s *State) forget(ids []ShardID, floor sharedlog.LSN) (forgotten []ShardID, ok bool) {
	if floor > s.tail {
		return nil, false
	}
	for _, id := range ids {
		if sh := s.shard(id); sh != nil && !sh.Sealed || uint64(id) > s.opened {
			return nil, false
		}
	}
	kept := s.shards[:0]
	for _, sh := range s.shards {
		if _, found := slices.BinarySearch(ids, sh.ID); found {
			forgotten = append(forgotten, sh.ID)
			continue
		}
		kept = append(kept, sh)
	}
	clear(s.shards[len(kept):])
	s.shards = kept
	if floor > s.floor {
		s.floor = floor
		for tag, before := range s.trims {
			if before <= floor {
				delete(s.trims, tag)
				s.trimBytes -= len(tag) + pointBytes
			}
		}
	}
	return forgotten, true
}

// cut orders the positions beyond the previous lengths (invariant 2). Ids ascend in a cut, so LSNs
// ascend by (shard id, position).
func (s *State) cut(lengths []Length) []Run {
	s.runs = s.runs[:0]
	for _, l := range lengths {
		sh := s.shard(l.Shard)
		if sh == nil || sh.Sealed || l.Length <= sh.Length {
			continue
		}
		s.runs = append(s.runs, Run{Shard: l.Shard, From: sh.Length, To: l.Length, First: s.tail})
		s.tail += sharedlog.LSN(l.Length - sh.Length)
		sh.Length = l.Length
	}
	return s.runs
}

func (s *State) shard(id ShardID) *Shard {
	if id == 0 || uint64(id) > s.opened {
		return nil
	}
	// First try the index that is correct if no shard after this one was forgotten, which is nearly
	// always so.
	if back := s.opened - uint64(id); back < uint64(len(s.shards)) {
		if sh := &s.shards[uint64(len(s.shards))-1-back]; sh.ID == id {
			return sh
		}
	}
	i, ok := slices.BinarySearchFunc(s.shards, id, func(sh Shard, id ShardID) int { return cmp.Compare(sh.ID, id) })
	if !ok {
		return nil
	}
	return &s.shards[i]
}
