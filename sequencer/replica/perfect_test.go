package replica

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
)

// perfect is three replicas, the first of which is the leader, on a network that loses nothing and
// keeps the order. Disks complete jobs at once, unless the test makes one slow.
type perfect struct {
	t        *testing.T
	replicas []*Replica // index i is sequencer i+1
	jobs     [][]*Job
	slow     []bool // the disk completes no job
}

func newPerfect(t *testing.T) *perfect {
	p := &perfect{t: t}
	for id := range uint64(3) {
		p.add(Options{ID: id + 1, Voters: []uint64{1, 2, 3}, Members: begins()})
	}
	require.NoError(t, p.replicas[0].Campaign())
	p.runAll()
	require.True(t, p.replicas[0].Leading())
	return p
}

// add starts a replica on an empty disk.
func (p *perfect) add(o Options) {
	o.FS, o.Dir, o.AheadBytes, o.Async, o.Passive, o.Logger = vfs.NewMem(), "seq", -1, true, true, quiet
	r, err := Open(o)
	require.NoError(p.t, err)
	p.replicas, p.jobs, p.slow = append(p.replicas, r), append(p.jobs, nil), append(p.slow, false)
	p.t.Cleanup(func() { _ = r.Close() }) // waiting callers get ErrUnknown
}

// runAll runs all replicas until nothing is left to do.
func (p *perfect) runAll() {
	for p.step() {
	}
}

// step runs each replica and its disk once, and reports whether there was anything to do.
func (p *perfect) step() (busy bool) {
	for i, r := range p.replicas {
		out, err := r.Process()
		require.NoError(p.t, err)
		p.jobs[i] = append(p.jobs[i], out.Jobs...)
		busy = busy || len(out.Messages) > 0
		for _, m := range out.Messages {
			if to := m.GetTo(); to <= uint64(len(p.replicas)) {
				b, err := proto.Marshal(m)
				require.NoError(p.t, err)
				m = new(raftpb.Message)
				require.NoError(p.t, proto.Unmarshal(b, m))
				_ = p.replicas[to-1].Step(m) // an error: from a removed member
			}
		}
		if p.slow[i] {
			continue
		}
		jobs := p.jobs[i]
		p.jobs[i] = nil
		busy = busy || len(jobs) > 0
		for _, j := range jobs {
			j.Run()
			require.NoError(p.t, r.Done(j))
		}
	}
	return busy
}

// propose proposes an entry at the leader, and returns its effect.
func (p *perfect) propose(e sequencer.Entry) (ef sequencer.Effect) {
	told := false
	require.NoError(p.t, p.replicas[0].Propose(e, func(e sequencer.Effect, err error) {
		require.NoError(p.t, err)
		ef, told = e, true
	}))
	p.runAll()
	require.True(p.t, told)
	return ef
}

func member(id uint64, state sequencer.SequencerState) sequencer.Entry {
	return entryOf(&node{id: id, store: 100 + id}, state)
}

// The other replicas may have a cut on their disks, and return it to followers, while the leader's
// disk is slow: the leader must not answer with an older tail.
func TestTailWaitsForWhatOthersShow(t *testing.T) {
	p := newPerfect(t)
	lead := p.replicas[0]
	shard := p.propose(sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: 7, Addrs: [][]byte{[]byte("a")}}).Shard
	p.slow[0] = true
	for length := uint64(5); length <= 10; length += 5 {
		require.NoError(t, lead.Report(sequencer.Report{Shard: shard, Incarnation: 7, Length: length}))
		p.runAll()
		require.EqualValues(t, length+1, p.replicas[1].State().Tail(), "a majority has it on disk")
		var tails []sharedlog.LSN
		require.NoError(t, lead.Tail(func(tail sharedlog.LSN, err error) {
			require.NoError(t, err)
			tails = append(tails, tail)
		}))
		p.runAll()
		require.Empty(t, tails, "the leader has not applied it")
		p.slow[0] = false
		p.runAll()
		require.Equal(t, []sharedlog.LSN{sharedlog.LSN(length + 1)}, tails)
		p.slow[0] = true
	}
	p.slow[0] = false
	p.runAll()
}

// A change of the members is reported when the remaining members know it: if the leader crashes
// then, they do not wait for a majority that includes the removed one.
func TestAChangeIsToldWhenItIsKnown(t *testing.T) {
	p := newPerfect(t)
	lead := p.replicas[0]
	done := false
	require.NoError(t, lead.Propose(member(3, sequencer.SequencerRemoved), func(ef sequencer.Effect, err error) {
		require.NoError(t, err)
		require.True(t, ef.OK)
		require.Equal(t, []uint64{1, 2}, p.replicas[1].Voters(), "the leader may die now")
		done = true
	}))
	p.runAll()
	require.True(t, done)
}

// There is one change of the members at a time: also if it has been applied here and the remaining
// members do not know it yet.
func TestOneChangeAtATime(t *testing.T) {
	p := newPerfect(t)
	lead := p.replicas[0]
	done := false
	require.NoError(t, lead.Propose(member(4, sequencer.SequencerLearner), func(_ sequencer.Effect, err error) {
		require.NoError(t, err)
		done = true
	}))
	applied := 0
	for busy := true; busy && !done; busy = p.step() {
		require.ErrorIs(t, lead.Propose(member(5, sequencer.SequencerLearner), nil), ErrChanging)
		applied += len(lead.Learners())
	}
	require.True(t, done)
	require.NotZero(t, applied)
	require.True(t, p.propose(member(5, sequencer.SequencerLearner)).OK)
}

// Raft does not apply a change that the metalog refuses: the number of a removed sequencer, or the
// address of another one.
func TestRefusedChangesOfTheMembers(t *testing.T) {
	p := newPerfect(t)
	require.True(t, p.propose(member(4, sequencer.SequencerLearner)).OK)
	require.True(t, p.propose(member(4, sequencer.SequencerRemoved)).OK)
	taken := member(5, sequencer.SequencerLearner)
	taken.Sequencer.Addr = "s2"
	for _, e := range []sequencer.Entry{member(4, sequencer.SequencerLearner), taken} {
		require.False(t, p.propose(e).OK)
		for i, r := range p.replicas {
			require.Empty(t, r.Learners(), "sequencer %d", i+1)
			require.Equal(t, []uint64{1, 2, 3}, r.Voters(), "sequencer %d", i+1)
		}
	}
	require.True(t, p.propose(member(5, sequencer.SequencerLearner)).OK)
}

// A replica that was behind has received a snapshot: it lacks the history between its older files
// and the snapshot.
func TestHistoryEndsAtASnapshot(t *testing.T) {
	r := grow(t, vfs.NewMem(), 1<<20, 300)
	files, err := r.View().files()
	require.NoError(t, err)
	require.Greater(t, len(files), 5)
	state, err := sequencer.RestoreState(r.State().AppendSnapshot(nil))
	require.NoError(t, err)
	for i := range 50 { // on the other replicas
		state.Apply(sequencer.Entry{Kind: sequencer.KindChange, Key: fmt.Sprint("e", i), New: []byte("x")})
	}
	last, err := r.store.LastIndex()
	require.NoError(t, err)
	require.NoError(t, r.Step(&raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(99)),
		Snapshot: snapshot(last+50, 99, r.conf, state.AppendSnapshot(nil)),
	}))
	_, err = r.Process()
	require.NoError(t, err)
	require.EqualValues(t, 350, r.State().Applied())
	files, err = r.View().files()
	require.NoError(t, err)
	require.Greater(t, len(files), 5, "the older ones are still there")
	for _, after := range []uint64{0, 150, 299} {
		n, err := readAll(r.View(), after)
		require.ErrorIs(t, err, ErrGone, "behind %d", after)
		require.Equal(t, 300-after, n, "what is there")
	}
	n, err := readAll(r.View(), 350)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, r.Close())
}
