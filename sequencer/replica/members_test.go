package replica

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
)

// operator replaces sequencers while other faults happen.
type operator struct {
	c        *cluster
	lost     *node // a voter that will not come back, or only as another one
	next     *node // its replacement; nil: not added yet
	promoted bool  // a request to make next a voter was sent, so next counts
	replaced int
	refused  int // adds during another change
}

func entryOf(n *node, state sequencer.SequencerState) sequencer.Entry {
	return sequencer.Entry{Kind: sequencer.KindSequencer, Sequencer: sequencer.Sequencer{ID: n.id, Addr: fmt.Sprint("s", n.id), StoreID: n.store, State: state}}
}

// lose removes a voter from the cluster in one of several ways.
func (o *operator) lose(n *node) {
	o.lost = n
	switch o.c.rng.IntN(3) {
	case 0: // it is gone with its disk
		n.gone = true
	case 1: // it comes back with an empty disk and starts like the first time
		n.gone = true
		o.c.start(&node{id: n.id, store: n.store + 1000, begins: true})
	case 2: // it is healthy: an operator wants to replace it
	}
}

// step does the next action of the operator, at any sequencer.
func (o *operator) step(n *node) {
	c := o.c
	if o.lost == nil {
		for _, m := range c.members() {
			if m == n && slices.Contains(n.r.Voters(), n.id) && len(n.r.Learners()) == 0 && len(n.r.Voters()) == 3 {
				o.lose(n)
			}
		}
		return
	}
	if !n.r.Leading() {
		return
	}
	told := func(e sequencer.Effect, err error) {
		if err == nil {
			c.acked[e.Index] = describe(e)
			if lost := o.lost; lost != nil && e.OK && e.Sequencer.ID == lost.id && e.Sequencer.State == sequencer.SequencerRemoved {
				o.lost, o.next = nil, nil // another one may be lost from now on
				o.replaced++
			}
		}
	}
	if o.next == nil {
		id := c.nodes[len(c.nodes)-1].id
		for _, m := range c.nodes {
			id = max(id, m.id)
		}
		o.next, o.promoted = &node{id: id + 1, store: 100 + id + 1}, false
		c.start(o.next)
	}
	next, known := n.r.State().Sequencer(o.next.id)
	old, _ := n.r.State().Sequencer(o.lost.id)
	var err error
	switch {
	case !known:
		err = n.r.Propose(entryOf(o.next, sequencer.SequencerLearner), told)
		if err == nil { // two changes at once
			other := entryOf(&node{id: 900, store: 900}, sequencer.SequencerLearner)
			require.ErrorIs(c.t, n.r.Propose(other, told), ErrChanging)
			o.refused++
		}
	case next.State == sequencer.SequencerLearner && !o.promoted && (o.next.gone || c.rng.IntN(20) == 0): // its disk is lost
		o.next.gone = true
		err = n.r.Propose(entryOf(o.next, sequencer.SequencerRemoved), told)
		if err == nil {
			o.next = nil
		}
	case next.State == sequencer.SequencerLearner:
		if p, commit, ok := n.r.Progress(o.next.id); ok && p.Replicate && p.Match >= commit {
			err = n.r.Propose(entryOf(o.next, sequencer.SequencerVoter), told)
			o.promoted = true
		}
	case next.State == sequencer.SequencerRemoved:
		o.next = nil
	case o.lost.id == n.id && old.State != sequencer.SequencerRemoved:
		n.r.Transfer(o.next.id)
	default: // again, if the outcome is unknown
		err = n.r.Propose(entryOf(o.lost, sequencer.SequencerRemoved), told)
	}
	if err != nil {
		require.ErrorIs(c.t, err, ErrChanging)
	}
	c.process(n)
}

// Sequencers are replaced, one after the other, while they crash, are partitioned and lose
// messages. Each time one of the three is lost permanently, or comes back wiped, or stays as a
// zombie with its old configuration. There is one order, nothing acknowledged is lost, and the
// cluster agrees in the end.
func TestMembersUnderFaults(t *testing.T) {
	seeds := uint64(40)
	if os.Getenv("TAILRACE_SOAK") != "" {
		seeds = 5000
	}
	acked, replaced, refused := 0, 0, 0
	for seed := range seeds {
		c := newCluster(t, seed)
		c.healAll()
		o := &operator{c: c}
		c.run(8000, o.step)
		acked, replaced, refused = acked+len(c.acked), replaced+o.replaced, refused+o.refused
	}
	t.Logf("%d acknowledged, %d sequencers replaced, %d changes refused", acked, replaced, refused)
	require.Greater(t, acked, 20*int(seeds))
	require.Greater(t, replaced, int(seeds)/2)
	require.NotZero(t, refused)
}

// story returns a cluster in which the test delivers the messages.
func story(t *testing.T) (c *cluster, lead, second, third *node) {
	c = newCluster(t, 3)
	c.healAll()
	lead = c.leader()
	return c, lead, c.nodes[lead.id%3], c.nodes[(lead.id+1)%3]
}

// propose proposes an entry at the leader, runs the cluster, and returns the outcome.
func (c *cluster) propose(n *node, e sequencer.Entry) (ef sequencer.Effect, err error) {
	told := false
	if err = n.r.Propose(e, func(e sequencer.Effect, outcome error) { ef, err, told = e, outcome, true }); err != nil {
		return ef, err
	}
	for range 1000 {
		if told {
			return ef, err
		}
		c.process(n)
		c.healAll()
	}
	require.Fail(c.t, "no outcome")
	return ef, err
}

// The metalog entry that adds a member and raft's change of its configuration are one entry: a
// crash of a leader cannot separate them. The new member gets a snapshot with itself as a member,
// and continues from its disk after a power failure.
func TestAddALearner(t *testing.T) {
	c, lead, _, _ := story(t)
	four := &node{id: 4, store: 104}
	c.start(four)
	ef, err := c.propose(lead, entryOf(four, sequencer.SequencerLearner))
	require.NoError(t, err)
	require.True(t, ef.OK)
	for _, n := range c.nodes {
		require.Equal(t, []uint64{1, 2, 3}, n.r.Voters())
		require.Equal(t, []uint64{4}, n.r.Learners())
	}
	for range 3 {
		c.crash(four)
		require.Equal(t, four.r.applied > 0, four.r.State().Applied() > 0 || len(four.r.State().Sequencers()) > 0)
		c.healAll()
		require.Equal(t, []uint64{4}, four.r.Learners())
	}
	// It does not count: with one of the three down and the learner up, two keep a leader; with two
	// down there is none.
	voters := func(n *node, want ...uint64) { require.Equal(t, want, n.r.Voters()) }
	_, err = c.propose(c.leader(), entryOf(four, sequencer.SequencerVoter))
	require.NoError(t, err)
	voters(four, 1, 2, 3, 4)
	ef, err = c.propose(c.leader(), entryOf(four, sequencer.SequencerLearner))
	require.NoError(t, err)
	require.False(t, ef.OK, "a voter does not become a learner")
	voters(four, 1, 2, 3, 4)
}

// Changes that are refused before they are proposed.
func TestChangesThatAreRefused(t *testing.T) {
	c, lead, second, _ := story(t)
	five := &node{id: 5, store: 105}
	_, err := c.propose(lead, entryOf(five, sequencer.SequencerVoter))
	require.ErrorIs(t, err, sharedlog.ErrInvalid, "it has not received the metalog")
	_, err = c.propose(second, entryOf(five, sequencer.SequencerLearner))
	require.ErrorIs(t, err, ErrNotLeader)
	for _, id := range []uint64{second.id, lead.id%3 + 2} {
		if id == lead.id || id > 3 {
			continue
		}
		_, err = c.propose(c.leader(), entryOf(c.nodes[id-1], sequencer.SequencerRemoved))
		require.NoError(t, err)
	}
	alone, err := Open(Options{ID: 1, Voters: []uint64{1}, Members: begins()[:1], FS: c.nodes[0].disk, Dir: "alone", Logger: quiet})
	require.NoError(t, err)
	require.NoError(t, alone.Campaign())
	_, err = alone.Process()
	require.NoError(t, err)
	require.ErrorIs(t, alone.Propose(entryOf(c.nodes[0], sequencer.SequencerRemoved), nil), sharedlog.ErrInvalid, "the only one")
	require.NoError(t, alone.Close())
	old, err := Open(Options{ID: 1, Voters: []uint64{1}, Level: 1, FS: c.nodes[0].disk, Dir: "old", Logger: quiet})
	require.NoError(t, err)
	require.NoError(t, old.Campaign())
	_, err = old.Process()
	require.NoError(t, err)
	require.ErrorIs(t, old.Propose(entryOf(five, sequencer.SequencerLearner), nil), sharedlog.ErrVersion)
	require.NoError(t, old.Close())
}

// Raft drops a change of the members while another one is not applied: the caller gets ErrUnknown,
// and the leader continues.
func TestRaftDropsAChange(t *testing.T) {
	c, lead, _, _ := story(t)
	for id := uint64(7); id < 9; id++ { // without the Core
		require.NoError(t, lead.r.raft.ProposeConfChange(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: proto.Uint64(id)}}}))
	}
	outcome := error(nil)
	require.NoError(t, lead.r.Propose(entryOf(&node{id: 4, store: 104}, sequencer.SequencerLearner), func(_ sequencer.Effect, err error) { outcome = err }))
	c.process(lead)
	c.healAll()
	require.ErrorIs(t, outcome, ErrUnknown)
	require.Empty(t, lead.r.Learners(), "a change that the metalog does not know is not taken")
	ef, err := c.propose(c.leader(), entryOf(&node{id: 4, store: 104}, sequencer.SequencerLearner))
	require.NoError(t, err)
	require.True(t, ef.OK)
	require.Equal(t, []uint64{4}, lead.r.Learners())
}

// A leader that was asked to hand over to a sequencer that does not answer stays leader: it accepts
// proposals again.
func TestALeaderThatCannotHandOver(t *testing.T) {
	c, lead, second, _ := story(t)
	c.cut[second.id] = true
	lead.r.Transfer(second.id)
	outcome := error(nil)
	entry := sequencer.Entry{Kind: sequencer.KindTrim, Tag: "t", Before: 1}
	require.NoError(t, lead.r.Propose(entry, func(_ sequencer.Effect, err error) { outcome = err }))
	c.process(lead)
	require.ErrorIs(t, outcome, ErrUnknown, "raft takes nothing meanwhile")
	require.False(t, lead.r.Leading())
	for range 30 {
		for _, n := range c.nodes {
			if n != second {
				n.r.Tick()
				c.process(n)
			}
		}
		for len(c.wire) > 0 {
			c.deliver()
		}
	}
	require.True(t, lead.r.Leading())
	_, err := c.propose(lead, entry)
	require.NoError(t, err)
}
