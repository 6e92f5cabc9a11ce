package sequencer

import (
	"bytes"

	"tailrace.dev/tailrace/sharedlog"
)

// Shard is what the order knows of a shard.
type Shard struct {
	ID          ShardID
	Incarnation uint64
	Addrs       [][]byte
	Opened      sharedlog.LSN // place
	Length      uint64        // records ordered
	Sealed      bool
	SealedAt    sharedlog.LSN // place, when Sealed
}

// State is the deterministic result of a prefix of the metalog. The zero State
// is not usable; see NewState and RestoreState.
type State struct {
	applied    uint64 // entries
	tail       sharedlog.LSN
	generation uint64
	shards     []Shard // index = id - 1
	meta       map[string][]byte
	trims      map[sharedlog.Tag]sharedlog.LSN
	runs       []Run // of the last Effect, reused
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
	// never exchanged: seal it, and open another).
	OK bool
	// Runs (cut) is valid until the next Apply.
	Runs []Run
	// Key and Value (change) tell what the key holds now; nobody writes to
	// Value.
	Key   string
	Value []byte
	// Shard is the one that was opened, sealed or placed; Info says what is known
	// of it as of the entry: later entries change it no more.
	Shard ShardID
	Info  Shard
	// Tag and Before (trim) tell the point as it now stands.
	Tag    sharedlog.Tag
	Before sharedlog.LSN
}

// NewState returns the state of an empty metalog.
func NewState() *State {
	return &State{tail: sharedlog.First, meta: map[string][]byte{}, trims: map[sharedlog.Tag]sharedlog.LSN{}}
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

// Shards returns all shards by id; read only, valid until the next Apply.
func (s *State) Shards() []Shard { return s.shards }

// Apply takes the next entry of the metalog. It is total: an entry that cannot
// have its effect has none, everywhere alike, and says so by OK.
func (s *State) Apply(e Entry) Effect {
	s.applied++
	ef := Effect{Index: s.applied, Kind: e.Kind, Place: s.tail}
	switch e.Kind {
	case KindCut:
		ef.OK, ef.Runs = true, s.cut(e.Cut)
	case KindChange:
		ef.Key = e.Key
		if ef.OK = bytes.Equal(s.meta[e.Key], e.Old); ef.OK {
			if len(e.New) == 0 {
				delete(s.meta, e.Key)
			} else {
				s.meta[e.Key] = e.New
			}
		}
		ef.Value = s.meta[e.Key]
	case KindOpen:
		ef.OK, ef.Shard = true, ShardID(len(s.shards)+1)
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
		if ef.OK = e.Before <= s.tail; ef.OK && e.Before > s.trims[e.Tag] {
			s.trims[e.Tag] = e.Before
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
	}
	return ef
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
	if id == 0 || int(id) > len(s.shards) {
		return nil
	}
	return &s.shards[id-1]
}
