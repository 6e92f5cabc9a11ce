package sequencer

import (
	"bytes"
	"cmp"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// Shard is what the order knows of a shard.
type Shard struct {
	ID          ShardID
	Incarnation uint64
	Addrs       [][]byte
	Opened      sharedlog.LSN // place
	Length      uint64        // records ordered
	Lost        uint64        // how many of the newest of them are lost for ever (a rescue)
	Sealed      bool
	SealedAt    sharedlog.LSN // place, when Sealed
}

// State is the deterministic result of a prefix of the metalog. The zero State
// is not usable; see NewState and RestoreState.
type State struct {
	applied    uint64 // entries
	tail       sharedlog.LSN
	generation uint64
	level      uint32
	opened     uint64        // shards, ever; the id of the newest
	floor      sharedlog.LSN // no record lies below
	shards     []Shard       // by id, without those that were forgotten
	meta       map[string][]byte
	trims      map[sharedlog.Tag]sharedlog.LSN // Invariant: none at or below floor
	nodes      map[string]NodeState            // without those that are active
	sequencers []Sequencer                     // by ID, removed ones included
	metaBytes  int                             // of keys and values
	owned      map[string]int                  // of them by owner (sharedlog.Owner)
	trimBytes  int                             // of tags and points
	runs       []Run                           // of the last Effect, reused
}

// Run is the part of a cut that concerns one shard: positions From … To-1 of its
// sublog have the LSNs First, First+1, …
type Run struct {
	Shard    ShardID
	From, To uint64
	First    sharedlog.LSN
}

// Effect is what one entry did. Only the fields named by the entry's kind are
// meaningful.
type Effect struct {
	Index uint64 // of the entry, from 1
	Kind  Kind
	// Place is the tail before the entry; of a repeated seal, the first
	// seal's place.
	Place sharedlog.LSN
	// OK is false for an entry that changed nothing because it was refused: a
	// change whose key held something else, a seal of an unknown shard, a trim
	// point above the tail, a place of a shard that is open (its replicas are
	// never exchanged: seal it, and open another), a rescue that loses nothing
	// or of a shard that is open, a forget of a shard that is open or with a
	// floor above the tail, a level below the one reached, a sequencer that
	// contradicts what is known of it, and any entry of a level that the
	// cluster has not reached.
	OK bool
	// Runs (cut) is valid until the next Apply.
	Runs []Run
	// Key and Value (change) tell what the key holds now; nobody writes to
	// Value.
	Key   string
	Value []byte
	// Shard is the one that was opened, sealed, placed or rescued; Info says what is
	// known of it as of the entry: later entries change it no more.
	Shard ShardID
	Info  Shard
	// Tag and Before (trim) tell the point as it now is.
	Tag    sharedlog.Tag
	Before sharedlog.LSN
	// Forgotten (forget) are the shards that left the tables, Floor is the floor as
	// it now is. Nobody writes to Forgotten.
	Forgotten []ShardID
	Floor     sharedlog.LSN
	Level     uint32    // (level) as it now is
	Node      Node      // (node) as it now is
	Sequencer Sequencer // (sequencer) as it now is
}

// NewState returns the state of an empty metalog, at this program's level.
func NewState() *State { return NewStateAt(Level) }

// NewStateAt returns the state of an empty metalog at a level that other programs
// of the cluster speak.
func NewStateAt(level uint32) *State {
	return &State{
		tail: sharedlog.First, level: level, floor: sharedlog.First,
		meta: map[string][]byte{}, owned: map[string]int{}, trims: map[sharedlog.Tag]sharedlog.LSN{}, nodes: map[string]NodeState{},
	}
}

// Applied returns how many entries were applied: the index of the last one.
func (s *State) Applied() uint64 { return s.applied }

// Tail returns the next LSN.
func (s *State) Tail() sharedlog.LSN { return s.tail }

// Generation counts how often the order was ended by a power cut and continued.
func (s *State) Generation() uint64 { return s.generation }

// Value returns what a metadata key holds, nil when absent. Nobody writes to it.
func (s *State) Value(key string) []byte { return s.meta[key] }

// Metadata calls f for each key and value, in no particular order.
func (s *State) Metadata(f func(key string, value []byte)) {
	for k, v := range s.meta {
		f(k, v)
	}
}

// TrimPoint returns the first LSN of tag that was not trimmed away; 0 when the
// tag was never trimmed.
func (s *State) TrimPoint(tag sharedlog.Tag) sharedlog.LSN { return s.trims[tag] }

// TrimPoints calls f for each tag that was trimmed, in no particular order.
func (s *State) TrimPoints(f func(tag sharedlog.Tag, before sharedlog.LSN)) {
	for t, before := range s.trims {
		f(t, before)
	}
}

// Shards returns all shards that were not forgotten, ids ascending; read only, valid
// until the next Apply.
func (s *State) Shards() []Shard { return s.shards }

// Shard returns what is known of a shard, nil if it was never opened or was
// forgotten; read only, valid until the next Apply.
func (s *State) Shard(id ShardID) *Shard { return s.shard(id) }

// Opened returns how many shards were ever opened: the id of the newest.
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

// Apply takes the next entry of the metalog. It is total: an entry that cannot
// have its effect has none, everywhere alike, and says so by OK.
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

// set gives a metadata key its value, none if it is empty.
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

// Owned returns how many bytes of metadata an owner has (sharedlog.Owner).
func (s *State) Owned(owner string) int { return s.owned[owner] }

// pointBytes is what the LSN of a trim point counts.
const pointBytes = 8

// trim moves a tag's trim point up. One at or below the floor says nothing.
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

// forget takes shards of which nothing is left out of the tables and raises the
// floor. Shards that were forgotten before are no contradiction: a leader that
// does not know the outcome proposes again.
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

// cut orders what exceeds the lengths before (invariant 2). Ids ascend in a
// cut, so LSNs go by (shard id, position).
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
	// As if nothing between it and the newest had been forgotten: nearly always so.
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
