package replica

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
)

// ErrChanging means that a change of the members is in progress; the next one must wait for it.
var ErrChanging = errors.New("another change of the sequencers is under way")

// Voters and Learners return the members as of the applied entries; read only.
func (r *Replica) Voters() []uint64   { return r.conf.GetVoters() }
func (r *Replica) Learners() []uint64 { return r.conf.GetLearners() }

// change returns how an entry changes raft's configuration, nil if it does not.
func (r *Replica) change(e *sequencer.Entry) *raftpb.ConfChangeSingle {
	if e.Kind != sequencer.KindSequencer {
		return nil
	}
	id := e.Sequencer.ID
	voter, learner := slices.Contains(r.conf.GetVoters(), id), slices.Contains(r.conf.GetLearners(), id)
	kind := raftpb.ConfChangeAddNode
	switch {
	case e.Sequencer.State == sequencer.SequencerVoter && !voter:
	case e.Sequencer.State == sequencer.SequencerLearner && !voter && !learner:
		kind = raftpb.ConfChangeAddLearnerNode
	case e.Sequencer.State == sequencer.SequencerRemoved && (voter || learner):
		kind = raftpb.ConfChangeRemoveNode
	default:
		return nil
	}
	return &raftpb.ConfChangeSingle{Type: kind.Enum(), NodeId: &id}
}

// mayChange returns an error if a change of the members must not be proposed.
func (r *Replica) mayChange(e *sequencer.Entry, c *raftpb.ConfChangeSingle) error {
	switch id := c.GetNodeId(); {
	case r.changing:
		return ErrChanging
	case r.state.Level() < e.Kind.Level():
		return sharedlog.Errorf(sharedlog.KindVersion, "the members of a cluster at feature level %d cannot change", r.state.Level())
	case c.GetType() == raftpb.ConfChangeAddNode && !slices.Contains(r.conf.GetLearners(), id):
		return sharedlog.Errorf(sharedlog.KindInvalid, "sequencer %d is not a learner: only one that has received the metalog may vote", id)
	case c.GetType() == raftpb.ConfChangeRemoveNode && slices.Equal(r.conf.GetVoters(), []uint64{id}):
		return sharedlog.Errorf(sharedlog.KindInvalid, "sequencer %d is the only one", id)
	}
	return nil
}

// confirm is a change of the members that has been applied here and must be proposed once more.
type confirm struct {
	entry  sequencer.Entry
	effect sequencer.Effect
	done   func(sequencer.Effect, error)
}

// confirmed returns a callback for a change of the members. It calls done only after the same
// entry, which changes nothing the second time, is durable at a majority of the new members. They
// know from it that the change is committed. Otherwise a leader could report "removed" and crash,
// and the other members would look for a majority that includes the removed one.
func (r *Replica) confirmed(e sequencer.Entry, done func(sequencer.Effect, error)) func(sequencer.Effect, error) {
	return func(ef sequencer.Effect, err error) {
		if err != nil || !ef.OK {
			r.changing = false
			done(ef, err)
			return
		}
		r.confirm = &confirm{e, ef, done}
	}
}

// proposeBatch passes a batch to raft. A batch that changes the members is the context of raft's
// own entry for the change: either both take effect at one place, or neither does.
func (r *Replica) proposeBatch(entries []sequencer.Entry, data []byte) error {
	for i := range entries {
		if c := r.change(&entries[i]); c != nil {
			return r.raft.ProposeConfChange(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{c}, Context: data})
		}
	}
	return r.raft.Propose(data)
}

// batch returns the metalog entries of a raft entry, and the change of raft's configuration, nil if
// there is none.
func batch(e *raftpb.Entry) ([]byte, *raftpb.ConfChangeV2, error) {
	switch e.GetType() {
	case raftpb.EntryNormal:
		return e.GetData(), nil, nil
	case raftpb.EntryConfChangeV2:
		change := new(raftpb.ConfChangeV2)
		if err := proto.Unmarshal(e.GetData(), change); err != nil {
			return nil, nil, sharedlog.Errorf(sharedlog.KindCorrupt, "raft entry %d: %w", e.GetIndex(), err)
		}
		return change.GetContext(), change, nil
	}
	return nil, nil, sharedlog.Errorf(sharedlog.KindVersion, "raft entry %d is of type %v, which this program does not know: run the newer program that the rest of the cluster runs", e.GetIndex(), e.GetType())
}

// reconfigure applies a change to raft that was applied to the metalog, unless the metalog refused
// it: all replicas decide alike.
func (r *Replica) reconfigure(change *raftpb.ConfChangeV2) {
	for _, c := range change.GetChanges() {
		q, known := r.state.Sequencer(c.GetNodeId())
		want := map[raftpb.ConfChangeType]sequencer.SequencerState{
			raftpb.ConfChangeAddNode: sequencer.SequencerVoter, raftpb.ConfChangeAddLearnerNode: sequencer.SequencerLearner, raftpb.ConfChangeRemoveNode: sequencer.SequencerRemoved,
		}[c.GetType()]
		if !known || q.State != want {
			return
		}
	}
	r.conf = r.raft.ApplyConfChange(change)
}

// Progress is the state of another member according to the leader.
type Progress struct {
	Match     uint64 // raft index up to which it holds the log
	Replicate bool   // it receives entries as they are appended, without probing or a snapshot
}

// Progress returns the progress of a member, and raft's commit index; ok is false if this replica
// does not lead or does not know the member.
func (r *Replica) Progress(id uint64) (p Progress, commit uint64, ok bool) {
	if !r.leading {
		return p, 0, false
	}
	r.raft.WithProgress(func(peer uint64, _ raft.ProgressType, pr tracker.Progress) {
		if peer == id {
			p, ok = Progress{Match: pr.Match, Replicate: pr.State == tracker.StateReplicate}, true
		}
	})
	return p, r.raft.BasicStatus().GetCommit(), ok
}

// Transfer asks a voter to take over the leadership. If it is not up to date, or does not answer,
// this replica stays leader.
func (r *Replica) Transfer(to uint64) { r.raft.TransferLeader(to) }

// begin returns the initial state of a metalog with these sequencers.
func begin(level uint32, members []sequencer.Sequencer) (*sequencer.State, error) {
	if level == 0 {
		level = sequencer.Level
	}
	s := sequencer.NewStateAt(level)
	for _, q := range members {
		if !s.Begin(q) {
			return nil, fmt.Errorf("sequencer %d at %q cannot be a member beside %v", q.ID, q.Addr, s.Sequencers())
		}
	}
	return s, nil
}

// logStore is raft's log in memory. It makes a new snapshot if the members have changed since the
// last one: a member that was added since would not accept a snapshot without itself.
type logStore struct {
	*raft.MemoryStorage
	r *Replica
}

func (l *logStore) Snapshot() (*raftpb.Snapshot, error) {
	s, err := l.MemoryStorage.Snapshot()
	if err != nil || proto.Equal(s.GetMetadata().GetConfState(), l.r.conf) {
		return s, err
	}
	term, err := l.Term(l.r.applied)
	if err != nil {
		return nil, err
	}
	return snapshot(l.r.applied, term, l.r.conf, l.r.state.AppendSnapshot(nil)), nil
}
