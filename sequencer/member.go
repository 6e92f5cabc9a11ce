package sequencer

import (
	"cmp"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// NodeState is what a storage node may be used for.
type NodeState uint8

// The states of a storage node. The numbers are on disk.
const (
	NodeActive   NodeState = 0 // also nodes without an entry
	NodeDraining NodeState = 1 // gets no new replicas; those that it has move away
	NodeRemoved  NodeState = 2 // gets no replicas, and those that it has do not count
)

// String returns the state's name.
func (n NodeState) String() string {
	switch n {
	case NodeActive:
		return "active"
	case NodeDraining:
		return "draining"
	case NodeRemoved:
		return "removed"
	}
	return "unknown"
}

// Node is a storage node in the state that the operator has set.
type Node struct {
	Addr  string
	State NodeState
}

// SequencerState is the part that a sequencer takes in raft.
type SequencerState uint8

// The states of a sequencer. The numbers are on disk.
const (
	SequencerVoter   SequencerState = 0
	SequencerLearner SequencerState = 1 // receives the metalog, does not vote
	SequencerRemoved SequencerState = 2 // permanent: its ID is never reused
)

// String returns the state's name.
func (q SequencerState) String() string {
	switch q {
	case SequencerVoter:
		return "voter"
	case SequencerLearner:
		return "learner"
	case SequencerRemoved:
		return "removed"
	}
	return "unknown"
}

// Sequencer is a member of the sequencers. StoreID is a number that its data directory got when it
// was created: another directory under the same ID is another store, and must not vote in its
// place. 0: not known yet.
type Sequencer struct {
	ID      uint64
	Addr    string
	StoreID uint64
	State   SequencerState
}

// Node returns the state of the storage node at an address.
func (s *State) Node(addr string) NodeState { return s.nodes[addr] }

// Nodes calls f for each storage node that is not active, in no particular order.
func (s *State) Nodes(f func(Node)) {
	for addr, state := range s.nodes {
		f(Node{addr, state})
	}
}

// Sequencers returns the sequencers in the metalog, including removed ones, IDs ascending; read
// only, valid until the next Apply.
func (s *State) Sequencers() []Sequencer { return s.sequencers }

// Sequencer returns a sequencer, and whether it is in the metalog.
func (s *State) Sequencer(id uint64) (Sequencer, bool) {
	if i, ok := s.findSequencer(id); ok {
		return s.sequencers[i], true
	}
	return Sequencer{ID: id}, false
}

// Begin adds one of the initial members of a metalog, without an entry. It returns false where an
// entry would be refused.
func (s *State) Begin(q Sequencer) bool {
	_, ok := s.setSequencer(q)
	return ok
}

func (s *State) findSequencer(id uint64) (int, bool) {
	return slices.BinarySearchFunc(s.sequencers, id, func(q Sequencer, id uint64) int { return cmp.Compare(q.ID, id) })
}

func (s *State) setNode(n Node) bool {
	if n.Addr == "" {
		return false
	}
	if n.State == NodeActive {
		delete(s.nodes, n.Addr)
	} else {
		s.nodes[n.Addr] = n.State
	}
	return true
}

// setSequencer sets a member and returns its state afterwards. It refuses what would let two stores
// vote as one member, or one store as two: an ID that was removed, another store under a known ID,
// a store that was ever another member's, an address of another member. It also refuses to turn a
// voter into a learner: to take away its vote, remove the member.
func (s *State) setSequencer(q Sequencer) (Sequencer, bool) {
	i, known := s.findSequencer(q.ID)
	old := Sequencer{ID: q.ID}
	if known {
		old = s.sequencers[i]
	}
	switch {
	case q.ID == 0:
		return old, false
	case q.State == SequencerRemoved:
		q.Addr, q.StoreID = old.Addr, old.StoreID // unchanged
	case q.Addr == "", known && old.State == SequencerRemoved,
		known && old.State == SequencerVoter && q.State == SequencerLearner,
		known && old.StoreID != 0 && q.StoreID != old.StoreID:
		return old, false
	default:
		for _, other := range s.sequencers {
			if other.ID != q.ID && (other.Addr == q.Addr && other.State != SequencerRemoved || other.StoreID == q.StoreID && q.StoreID != 0) {
				return old, false
			}
		}
	}
	if known {
		s.sequencers[i] = q
	} else {
		s.sequencers = slices.Insert(s.sequencers, i, q)
	}
	return q, true
}

// Hello is the first message of a stream between sequencers: the sender, and the expected receiver.
// ToStore is 0 if the sender does not know it.
type Hello struct {
	From, FromStore, To, ToStore uint64
}

// Admit reports whether sequencer id, whose data is store, may accept messages from the sender of
// h; s is the state that it knows. If final is set, the sender must not take part any more and has
// to end; otherwise the error may be temporary. An unknown ID is admitted: a sequencer that was
// down may learn of a new leader from that leader first.
func (s *State) Admit(id, store uint64, h Hello) (final bool, err error) {
	from, known := s.Sequencer(h.From)
	switch {
	case h.To != id:
		return false, sharedlog.Errorf(sharedlog.KindInvalid, "this is sequencer %d, not %d: is the address right?", id, h.To)
	case known && from.State == SequencerRemoved:
		return true, sharedlog.Errorf(sharedlog.KindInvalid, "sequencer %d was removed from the cluster; its directory is of no use any more. To add a sequencer give it an empty directory and a number that was never used", h.From)
	case h.FromStore == 0 && s.level >= 2:
		return false, sharedlog.Errorf(sharedlog.KindVersion, "sequencer %d runs a program that is too old for this cluster (feature level %d): run the one that the others run", h.From, s.level)
	case known && from.StoreID != 0 && from.StoreID != h.FromStore:
		return true, ErrLostData(h.From)
	case h.ToStore != 0 && h.ToStore != store:
		return false, ErrLostData(id)
	}
	return false, nil
}

// ErrLostData is the error of a sequencer whose directory is not the one that the cluster knows.
func ErrLostData(id uint64) error {
	return sharedlog.Errorf(sharedlog.KindInvalid, "the directory of sequencer %d is not the one with which it joined the cluster: its votes and acknowledgements are lost, and it must not take part under this number. "+
		"Start it with --join, an empty directory and a number that was never used, add it (tailrace log sequencers add --id NEW --addr HOST:PORT), and remove the old one (tailrace log sequencers remove --id %d)", id, id)
}
