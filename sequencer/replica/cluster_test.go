package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// cluster is three replicas (and their replacements), a network that loses, repeats, delays and
// reorders messages, and the invariants that must hold. Its choices come from a seed; raft's own
// election timeouts do not, so a seed is a strong hint and not an exact replay.
type cluster struct {
	t     *testing.T
	rng   *rand.Rand
	nodes []*node
	wire  []packet        // messages in flight
	cut   map[uint64]bool // disconnected from the others

	// order is the metalog as it was first shown: each effect, encoded.
	order map[uint64]string
	// acked holds the effects that were returned to callers.
	acked map[uint64]string
	tails []sharedlog.LSN // results of linearizable reads, in the order of the answers
	// length is what the shard's primary has reported to all replicas.
	shards  int
	length  uint64
	unknown int
	refused int
	read    uint64 // effects read from disks
	gone    int    // reads of disks that no longer have the history
}

// packet is a message with the hello of its stream.
type packet struct {
	bytes []byte
	hello sequencer.Hello
}

type node struct {
	id      uint64
	store   uint64 // of its disk
	begins  bool   // with an empty disk it forms a cluster of 1, 2, 3; otherwise it waits for one
	gone    bool   // permanently
	disk    *vfs.Mem
	r       *Replica
	jobs    []*Job // jobs for the disk, started and not done
	applied uint64 // metalog index of the last effect that r returned
}

func newCluster(t *testing.T, seed uint64) *cluster {
	c := &cluster{t: t, rng: rand.New(rand.NewPCG(seed, 11)), order: map[uint64]string{}, acked: map[uint64]string{}, cut: map[uint64]bool{}}
	for id := range uint64(3) {
		c.start(&node{id: id + 1, store: 100 + id + 1, begins: true})
	}
	return c
}

// start adds a node with an empty disk.
func (c *cluster) start(n *node) {
	n.disk = vfs.NewMem()
	c.nodes = append(c.nodes, n)
	c.open(n)
}

// begins returns the members that form the cluster.
func begins() (members []sequencer.Sequencer) {
	for id := range uint64(3) {
		members = append(members, sequencer.Sequencer{ID: id + 1, Addr: fmt.Sprint("s", id+1), StoreID: 100 + id + 1})
	}
	return members
}

func (c *cluster) open(n *node) {
	o := Options{ID: n.id, FS: n.disk, Dir: "seq", AheadBytes: ahead(n.id), SnapshotBytes: 2 << 10, HistoryBytes: 4 << 10, Async: async(n.id), Logger: quiet}
	if n.begins {
		o.Voters, o.Members = []uint64{1, 2, 3}, begins()
	}
	var err error
	n.r, err = Open(o)
	require.NoError(c.t, err)
	n.applied, n.jobs = n.r.State().Applied(), nil
}

// async makes two of the three replicas work while their disks do, as in a process.
func async(id uint64) bool { return id != 3 }

// ahead makes one of the three replicas fill its file with zeros in advance.
func ahead(id uint64) int64 {
	if id == 1 {
		return 4 << 10
	}
	return -1
}

// crash ends a node like a power failure, and restarts it with what is left.
func (c *cluster) crash(n *node) {
	disk := n.disk.CrashClone(c.rng)
	require.NoError(c.t, n.r.Close())
	n.disk = disk
	c.open(n)
}

func describe(e sequencer.Effect) string { return fmt.Sprintf("%+v", e) }

// process runs Process of a node, and checks the result.
func (c *cluster) process(n *node) {
	out, err := n.r.Process()
	require.NoError(c.t, err)
	if out.Snapshot != nil {
		s, err := sequencer.RestoreState(out.Snapshot)
		require.NoError(c.t, err)
		require.GreaterOrEqual(c.t, s.Applied(), n.applied, "sequencer %d went back", n.id)
		n.applied = s.Applied()
	}
	for _, e := range out.Effects {
		require.Equal(c.t, n.applied+1, e.Index, "sequencer %d: effects in order, each once", n.id)
		n.applied = e.Index
		if first, ok := c.order[e.Index]; ok {
			require.Equal(c.t, first, describe(e), "sequencer %d shows another order", n.id)
		}
		c.order[e.Index] = describe(e)
	}
	n.jobs = append(n.jobs, out.Jobs...)
	for _, m := range out.Messages {
		c.promised(n, m)
		if c.cut[m.GetFrom()] || c.cut[m.GetTo()] || c.rng.IntN(20) == 0 {
			if m.GetType() == raftpb.MsgSnap {
				n.r.SnapshotSent(m.GetTo(), false)
			}
			continue
		}
		b, err := proto.Marshal(m)
		require.NoError(c.t, err)
		to, _ := n.r.State().Sequencer(m.GetTo())
		p := packet{b, sequencer.Hello{From: n.id, FromStore: n.store, To: m.GetTo(), ToStore: to.StoreID}}
		c.wire = append(c.wire, p)
		if c.rng.IntN(20) == 0 {
			c.wire = append(c.wire, p) // twice
		}
		if m.GetType() == raftpb.MsgSnap {
			n.r.SnapshotSent(m.GetTo(), true)
		}
	}
}

// nothing is the random source of a power failure that loses everything unsynced.
type nothing struct{}

func (nothing) Uint64() uint64 { return 0 }

// promised checks that the promise of a message would survive a power failure now: the entries that
// it acknowledges, the vote that it grants.
func (c *cluster) promised(n *node, m *raftpb.Message) {
	if m.GetReject() || m.GetType() != raftpb.MsgAppResp && m.GetType() != raftpb.MsgVoteResp {
		return
	}
	w, s, err := openWAL(n.disk.CrashClone(rand.New(nothing{})), "seq", -1, 1<<30, nil)
	require.NoError(c.t, err)
	require.NoError(c.t, w.close())
	require.GreaterOrEqual(c.t, s.state.GetTerm(), m.GetTerm(), "sequencer %d: %v", n.id, m)
	if m.GetType() == raftpb.MsgVoteResp {
		require.True(c.t, s.state.GetTerm() > m.GetTerm() || s.state.GetVote() == m.GetTo(), "sequencer %d: a vote that is not on its disk: %v", n.id, m)
		return
	}
	last := s.snapshot.GetMetadata().GetIndex() + uint64(len(s.entries))
	require.GreaterOrEqual(c.t, last, m.GetIndex(), "sequencer %d: acknowledges what is not on its disk: %v", n.id, m)
}

// finish runs a job of a node's disk, and calls Done now or later.
func (c *cluster) finish(n *node) {
	if len(n.jobs) == 0 {
		return
	}
	i := c.rng.IntN(len(n.jobs))
	j := n.jobs[i]
	j.Run()
	if c.rng.IntN(3) == 0 {
		return
	}
	n.jobs = append(n.jobs[:i], n.jobs[i+1:]...)
	require.NoError(c.t, n.r.Done(j))
	c.process(n)
}

// history reads what a node has shown again from its disk: from some index on, or all of it.
func (c *cluster) history(n *node) {
	after := c.rng.Uint64N(n.applied + 1)
	next := after + 1
	err := n.r.View().Read(after, func(e sequencer.Effect) error {
		require.Equal(c.t, next, e.Index)
		require.Equal(c.t, c.order[e.Index], describe(e), "sequencer %d, history behind %d", n.id, after)
		next++
		return nil
	})
	if errors.Is(err, ErrGone) {
		c.gone++
		return
	}
	require.NoError(c.t, err)
	if n.r.wal.old == nil {
		require.Equal(c.t, n.applied+1, next, "all of it")
	}
	c.read += next - after - 1
}

// deliver delivers any message: the network chooses the order.
func (c *cluster) deliver() {
	if len(c.wire) == 0 {
		return
	}
	i := c.rng.IntN(min(len(c.wire), 8))
	p := c.wire[i]
	c.wire = append(c.wire[:i], c.wire[i+1:]...)
	m := new(raftpb.Message)
	require.NoError(c.t, proto.Unmarshal(p.bytes, m))
	for _, n := range c.nodes {
		if n.id != m.GetTo() || c.cut[n.id] || n.gone {
			continue
		}
		// As on the sequencers' streams.
		if _, err := n.r.State().Admit(n.id, n.store, p.hello); err != nil {
			continue
		}
		_ = n.r.Step(m) // an error: a message that is misdirected or late
		c.process(n)
	}
}

// ask sends a request to one node, which need not be the leader.
func (c *cluster) ask(n *node) {
	answered := false
	once := func() {
		require.False(c.t, answered, "answered twice")
		answered = true
	}
	done := func(e sequencer.Effect, err error) {
		once()
		if err != nil {
			require.ErrorIs(c.t, err, ErrUnknown)
			c.unknown++
			return
		}
		c.acked[e.Index] = describe(e)
	}
	var err error
	switch c.rng.IntN(4) {
	case 0:
		key := "k" + strconv.Itoa(c.rng.IntN(3))
		err = n.r.Propose(sequencer.Entry{Kind: sequencer.KindChange, Key: key, Old: n.r.State().Value(key), New: strconv.AppendInt(nil, c.rng.Int64(), 36)}, done)
	case 1:
		if c.shards == 0 {
			err = n.r.Propose(sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: 7, Addrs: [][]byte{[]byte("a")}}, func(e sequencer.Effect, err error) {
				if err == nil && e.Shard == 1 {
					c.shards = 1
				}
				done(e, err)
			})
			break
		}
		c.length += c.rng.Uint64N(5)
		err = n.r.Report(sequencer.Report{Shard: 1, Incarnation: 7, Length: c.length})
	case 2:
		err = n.r.Propose(sequencer.Entry{Kind: sequencer.KindTrim, Tag: "t", Before: n.r.State().Tail()}, done)
	case 3:
		// The answer must be at or above every tail that has been returned by now.
		floor := sharedlog.LSN(0)
		for _, t := range c.tails {
			floor = max(floor, t)
		}
		err = n.r.Tail(func(tail sharedlog.LSN, err error) {
			once()
			if err != nil {
				require.ErrorIs(c.t, err, ErrNotLeader)
				return
			}
			require.GreaterOrEqual(c.t, tail, floor, "a linearizable read went back")
			c.tails = append(c.tails, tail)
		})
	}
	if err != nil {
		require.ErrorIs(c.t, err, ErrNotLeader)
		c.refused++
	}
	c.process(n)
}

// members returns the nodes that are members according to the node with the newest state.
func (c *cluster) members() (members []*node) {
	var newest *sequencer.State
	for _, n := range c.nodes {
		if s := n.r.State(); !n.gone && (newest == nil || s.Applied() > newest.Applied()) {
			newest = s
		}
	}
	for _, n := range c.nodes {
		if q, ok := newest.Sequencer(n.id); ok && !n.gone && q.State != sequencer.SequencerRemoved && q.StoreID == n.store {
			members = append(members, n)
		}
	}
	return members
}

// healAll ends all faults and waits, in ticks, until all members have applied the same entries.
func (c *cluster) healAll() {
	clear(c.cut)
	for range 5000 {
		for _, n := range c.nodes {
			if !n.gone {
				n.r.Tick()
				c.process(n)
			}
		}
		busy := func(n *node) bool { return len(n.jobs) > 0 }
		for len(c.wire) > 0 || slices.ContainsFunc(c.nodes, busy) {
			for _, n := range c.nodes {
				c.finish(n)
			}
			c.deliver()
		}
		members := c.members()
		lead := c.leader()
		if lead == nil {
			continue
		}
		same := true
		for _, n := range members {
			same = same && n.r.Leader() == lead.id && n.applied == lead.applied
		}
		if same {
			return
		}
	}
	for _, n := range c.nodes {
		c.t.Logf("sequencer %d, store %d, gone %v: leader %d, term %d, applied %d, voters %v, learners %v, %v",
			n.id, n.store, n.gone, n.r.Leader(), n.r.Term(), n.applied, n.r.Voters(), n.r.Learners(), n.r.State().Sequencers())
	}
	require.Fail(c.t, "no agreement after 5000 ticks without a fault")
}

// leader returns the leader, nil if there is none.
func (c *cluster) leader() *node {
	for _, n := range c.members() {
		if n.r.Leading() && n.r.Leader() == n.id {
			return n
		}
	}
	return nil
}

func (c *cluster) run(steps int, more func(n *node)) {
	for range steps {
		n := c.nodes[c.rng.IntN(len(c.nodes))]
		if n.gone {
			continue
		}
		switch k := c.rng.IntN(1000); {
		case k < 150:
			n.r.Tick()
			c.process(n)
		case k < 400:
			c.ask(n)
		case k < 403:
			c.crash(n)
		case k < 406:
			c.cut[n.id] = true
		case k < 415:
			clear(c.cut)
		case k < 600:
			c.finish(n)
			if c.rng.IntN(30) == 0 {
				c.history(n)
			}
		case k < 620:
			more(n)
		default:
			c.deliver()
		}
	}
	c.healAll()
	for index, e := range c.acked {
		require.Equal(c.t, c.order[index], e, "what was acknowledged is in the order")
	}
	members := c.members()
	want := members[0].r.State().AppendSnapshot(nil)
	for _, n := range members[1:] {
		require.True(c.t, bytes.Equal(want, n.r.State().AppendSnapshot(nil)), "sequencer %d holds another state", n.id)
	}
	for _, n := range c.nodes {
		require.NoError(c.t, n.r.Close())
	}
}

// Three sequencers with crashes, partitions and a bad network return one order, lose nothing that
// was acknowledged, never return an older tail, and agree when the faults end.
func TestClusterUnderFaults(t *testing.T) {
	seeds := uint64(60)
	if os.Getenv("TAILRACE_SOAK") != "" {
		seeds = 5000
	}
	acked, unknown, read := 0, 0, 0
	history, gone := uint64(0), 0
	for seed := range seeds {
		c := newCluster(t, seed)
		c.healAll()
		c.run(4000, func(*node) {})
		acked, unknown, read = acked+len(c.acked), unknown+c.unknown, read+len(c.tails)
		history, gone = history+c.read, gone+c.gone
	}
	t.Logf("%d acknowledged, %d unknown, %d tails, %d effects read from disks, %d times gone", acked, unknown, read, history, gone)
	require.NotZero(t, history)
	require.NotZero(t, gone)
	require.NotZero(t, unknown)
	require.Greater(t, acked, 20*int(seeds))
}

// A leader's Core starts after everything of older leaders has been applied: a sequencer after a
// power failure has entries of which it does not know whether they are committed.
func TestALeaderAppliesWhatIsOlderFirst(t *testing.T) {
	disk := vfs.NewMem()
	o := Options{ID: 1, Voters: []uint64{1}, FS: disk, Dir: "seq", AheadBytes: -1, Logger: quiet}
	r, err := Open(o)
	require.NoError(t, err)
	var entries []*raftpb.Entry
	index, term := uint64(1), uint64(1)
	for i := range 5 {
		index++
		one := sequencer.AppendEntry(nil, sequencer.Entry{Kind: sequencer.KindChange, Key: "k" + strconv.Itoa(i), New: []byte("old")})
		data := append(binary.AppendUvarint(nil, uint64(len(one))), one...)
		entries = append(entries, &raftpb.Entry{Index: proto.Uint64(index), Term: &term, Data: data})
	}
	require.NoError(t, r.wal.append(nil, entries))
	require.NoError(t, r.Close())

	r, err = Open(o)
	require.NoError(t, err)
	require.Equal(t, uint64(0), r.State().Applied())
	var outcome sequencer.Effect
	asked := false
	require.NoError(t, r.Campaign())
	for range 100 {
		if !asked && r.Leading() {
			require.Equal(t, uint64(5), r.State().Applied(), "the Core was made before older entries were applied")
			require.NoError(t, r.Propose(sequencer.Entry{Kind: sequencer.KindChange, Key: "k0", Old: []byte("old"), New: []byte("new")}, func(e sequencer.Effect, err error) {
				require.NoError(t, err)
				outcome = e
			}))
			asked = true
		}
		r.Tick()
		_, err := r.Process()
		require.NoError(t, err)
	}
	require.True(t, outcome.OK)
	require.Equal(t, uint64(6), outcome.Index)
	require.NoError(t, r.Close())
}

// A replica that was down for longer than the others keep entries gets a snapshot.
func TestSnapshotForOneFarBehind(t *testing.T) {
	c := newCluster(t, 1)
	c.healAll()
	lead := c.nodes[0].r.Leader()
	away := c.nodes[lead%3]
	c.cut[away.id] = true
	before := away.applied
	for range 2000 {
		c.ask(c.nodes[lead-1])
		c.deliver()
		c.deliver()
		for _, n := range c.nodes {
			c.finish(n)
		}
	}
	require.Greater(t, c.nodes[lead-1].applied, before+100)
	c.healAll()
	require.Equal(t, c.nodes[lead-1].applied, away.applied)
	first, err := away.r.store.FirstIndex()
	require.NoError(t, err)
	require.Greater(t, first, uint64(2), "it came by a snapshot")
}

func TestDamageBelowWhatWasDurable(t *testing.T) {
	c := newCluster(t, 2)
	c.healAll()
	c.run(500, func(*node) {})
	n := c.nodes[0]
	name := "seq/" + walName(n.r.wal.number)
	f, err := n.disk.OpenReadWrite(name)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	flip := func(off int64) {
		b := make([]byte, 1)
		_, err := f.ReadAt(b, off)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{b[0] ^ 1}, off)
		require.NoError(t, err)
	}
	o := n.r.opt
	flip(n.r.wal.base + 30)
	_, err = Open(o)
	require.Equal(t, sharedlog.KindCorrupt, sharedlog.KindOf(err), "%v", err)
	require.ErrorContains(t, err, name)
	flip(n.r.wal.base + 30)
	require.NoError(t, f.Truncate(size-1)) // a torn last record is no damage
	r, err := Open(o)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	// The members come from the data, not from the options.
	other := o
	other.Voters = []uint64{1, 2, 3, 4}
	r, err = Open(other)
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 2, 3}, r.Voters())
	require.NoError(t, r.Close())
}
