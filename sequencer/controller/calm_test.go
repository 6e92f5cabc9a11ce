package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sequencer"
)

// play is a cluster whose nodes follow the metalog, each in its own way.
type play struct {
	t       testing.TB
	rnd     *rand.Rand
	state   *sequencer.State
	nodes   map[string]*playNode
	addrs   []string
	pending []sequencer.Entry
	now     int64
	since   int64
	seals   int
	opens   int
	log     []string // decisions
}

// playNode is a healthy or faulty node.
type playNode struct {
	Node
	gone  bool
	full  bool  // its disk is full: copies to it do not complete
	loses bool  // it loses each replica that it gets
	hangs bool  // its disk hangs: it creates and copies nothing
	old   bool  // it is of feature level 1
	asOf  int64 // start of its session
	first map[sequencer.ShardID]int64
}

func newPlay(t testing.TB, rnd *rand.Rand) *play {
	p := &play{t: t, rnd: rnd, state: sequencer.NewState(), nodes: map[string]*playNode{}, now: 1000, since: 1000}
	for i := range 2 + rnd.IntN(6) {
		addr := fmt.Sprint("n", i)
		p.addrs = append(p.addrs, addr)
		p.nodes[addr] = &playNode{Node: Node{Addr: addr, Incarnation: uint64(i + 1), LastReport: 1000}, first: map[sequencer.ShardID]int64{}}
		p.nodes[addr].old = rnd.IntN(8) == 0
		if rnd.IntN(2) == 0 {
			p.nodes[addr].Zone = fmt.Sprint("z", rnd.IntN(3))
		}
	}
	return p
}

// change changes the cluster.
func (p *play) change() {
	n := p.nodes[p.addrs[p.rnd.IntN(len(p.addrs))]]
	switch p.rnd.IntN(12) {
	case 0:
		n.gone, n.Broken = true, p.now
	case 1: // it comes back, with its disk or without
		if n.gone {
			n.gone, n.Broken, n.asOf = false, 0, p.now
			old := n.Full
			n.Restarted(n.Incarnation + 100)
			if p.rnd.IntN(2) == 0 {
				n.Full = old
			} else {
				for _, sh := range p.state.Shards() {
					if !sh.Sealed && n.has(&sh) && !n.old {
						n.Reports = true
						n.Take(Replica{Shard: sh.ID, Health: Stale}, true, p.now)
					}
				}
			}
		}
	case 2:
		n.full = !n.full
	case 3:
		n.loses = !n.loses
	case 4:
		n.ReadOnly = !n.ReadOnly
	case 5:
		state := sequencer.NodeState(p.rnd.IntN(2)) // a removal is never undone
		p.state.Apply(sequencer.Entry{Kind: sequencer.KindNode, Node: sequencer.Node{Addr: n.Addr, State: state}})
	case 6: // another leader
		p.since, p.pending = p.now, nil
	case 7: // a shard grows
		for _, sh := range p.state.Shards() {
			if primary := p.nodes[string(sh.Addrs[0])]; !sh.Sealed && p.rnd.IntN(3) == 0 {
				primary.Grew(sh.ID, set.ShardBytes+uint64(p.rnd.IntN(100)))
			}
		}
	case 11:
		n.hangs = !n.hangs
	case 9: // a copy is damaged
		if len(n.Full) > 0 && !n.gone && !n.old {
			n.Take(Replica{Shard: n.Full[p.rnd.IntN(len(n.Full))], Health: Damaged}, false, p.now)
		}
	case 10: // and repaired
		for _, r := range slices.Clone(n.Replicas) {
			if r.Health == Damaged && !n.gone {
				n.Take(Replica{Shard: r.Shard, Health: OK}, false, p.now)
			}
		}
	case 8: // records are ordered
		for _, sh := range p.state.Shards() {
			if !sh.Sealed {
				p.state.Apply(sequencer.Entry{Kind: sequencer.KindCut, Cut: []sequencer.Length{{Shard: sh.ID, Length: sh.Length + 1}}})
			}
		}
	}
}

func (n *playNode) has(sh *sequencer.Shard) bool {
	return slices.ContainsFunc(sh.Addrs, func(a []byte) bool { return string(a) == n.Addr })
}

// step advances the time: nodes follow the metalog, and the leader decides.
func (p *play) step(ms int64) {
	p.now += ms
	var nodes []Node
	for _, addr := range p.addrs {
		n := p.nodes[addr]
		if !n.gone {
			n.LastReport = p.now
			n.follow(p)
		}
		if !n.gone || p.now-n.Broken < 1000 {
			nodes = append(nodes, n.Node)
		}
	}
	for _, d := range Decide(p.state, nodes, p.pending, p.since, p.now, set) {
		p.check(d)
		p.log = append(p.log, fmt.Sprintf("%d %v %d on %s: %s", p.now, d.Entry.Kind, d.Entry.Shard, d.Entry.Addrs, d.Why))
		p.pending = append(p.pending, d.Entry)
	}
	if p.rnd.IntN(2) == 0 { // entries are applied sooner or later
		for _, e := range p.pending {
			p.state.Apply(e)
		}
		p.pending = nil
	}
}

// follow simulates a node.
func (n *playNode) follow(p *play) {
	n.Reports = !n.old
	n.Keep(p.state, p.now, set)
	for _, sh := range p.state.Shards() {
		if !n.has(&sh) {
			continue
		}
		since, seen := n.first[sh.ID]
		if !seen {
			since, n.first[sh.ID] = p.now, p.now
		}
		primary := string(sh.Addrs[0]) == n.Addr
		if !sh.Sealed {
			n.Expect(sh.ID, p.now)
		}
		switch {
		case n.hangs && n.replica(sh.ID) != nil && n.replica(sh.ID).Health == Behind:
		case sh.Sealed:
			if p.now-since > 200 && !n.full && !n.hangs && !n.holds(sh.ID) {
				n.Full = append(n.Full, sh.ID)
				slices.Sort(n.Full)
			}
		case n.old:
		case n.loses && !primary && p.now-since > 300:
			n.Take(Replica{Shard: sh.ID, Health: Stale}, false, p.now)
		case n.full && !primary:
			n.Take(Replica{Shard: sh.ID, Health: Behind, Length: 7}, false, p.now)
		default:
			if r := n.replica(sh.ID); r == nil || r.Health != Stale {
				n.Take(Replica{Shard: sh.ID, Health: OK}, false, p.now)
			}
		}
	}
}

// check checks a decision.
func (p *play) check(d Decision) {
	e := d.Entry
	for i, a := range e.Addrs {
		for _, b := range e.Addrs[:i] {
			require.NotEqual(p.t, string(a), string(b), "twice on one node: %s", d.Why)
		}
	}
	switch e.Kind {
	case sequencer.KindOpen:
		p.opens++
		primary := p.nodes[string(e.Addrs[0])]
		if primary.ReadOnly {
			p.onlyReadOnly()
		}
		require.Equal(p.t, primary.Incarnation, e.Incarnation)
		require.Greater(p.t, len(e.Addrs), set.Replicas/2)
		for _, a := range e.Addrs {
			require.Equal(p.t, sequencer.NodeActive, p.state.Node(string(a)), "on a node that is drained or removed")
		}
	case sequencer.KindSeal:
		require.False(p.t, p.state.Shard(e.Shard).Sealed)
		p.seals++
	case sequencer.KindPlace:
		require.True(p.t, p.state.Shard(e.Shard).Sealed)
		require.True(p.t, slices.ContainsFunc(e.Addrs, func(a []byte) bool { return p.nodes[string(a)].holds(e.Shard) }), "no node to copy from")
		p.remembers(e)
	}
}

// onlyReadOnly checks that a shard may be opened on a primary whose disk is nearly full: there is
// no other node and no open shard.
func (p *play) onlyReadOnly() {
	for _, n := range p.nodes {
		there := !n.gone || p.now-n.Broken < set.Grace
		require.False(p.t, there && p.state.Node(n.Addr) == sequencer.NodeActive && !n.ReadOnly, "a primary whose disk is nearly full, though that of %s is not\n%v", n.Addr, p)
	}
	for _, sh := range p.state.Shards() {
		sealing := slices.ContainsFunc(p.pending, func(e sequencer.Entry) bool { return e.Kind == sequencer.KindSeal && e.Shard == sh.ID })
		require.True(p.t, sh.Sealed || sealing, "a second shard on disks that are nearly full\n%v", p)
	}
}

// remembers checks that a sealed shard's list keeps all copies that may be complete as long as
// fewer than Replicas live nodes in it hold the shard.
func (p *play) remembers(e sequencer.Entry) {
	whole := 0
	for _, a := range e.Addrs {
		if n := p.nodes[string(a)]; p.state.Node(n.Addr) == sequencer.NodeActive && n.whole(p, e.Shard) {
			whole++
		}
	}
	if whole >= set.Replicas {
		return
	}
	sh := p.state.Shard(e.Shard)
	for _, n := range p.nodes {
		if n.has(sh) || n.whole(p, e.Shard) {
			require.True(p.t, contains(e.Addrs, []byte(n.Addr)), "shard %d on %s -> %s: %d live nodes hold it, and %s is forgotten\n%v", e.Shard, sh.Addrs, e.Addrs, whole, n.Addr, p)
		}
	}
}

func (n *playNode) damaged() bool {
	return slices.ContainsFunc(n.Replicas, func(r Replica) bool { return r.Health == Damaged })
}

// whole reports whether a node is live and holds an undamaged copy.
func (n *playNode) whole(p *play, shard sequencer.ShardID) bool {
	r := n.replica(shard)
	return (!n.gone || p.now-n.Broken < set.Grace) && n.holds(shard) && (r == nil || r.Health != Damaged)
}

// Whatever happens to a cluster: when nothing more happens, the controller stops making decisions.
// No shard is sealed and opened over and over, every node that can be a primary is one, no open
// shard is worse than it could be, and sealed ones have their copies.
func TestTheControllerComesToRest(t *testing.T) {
	allReadOnly := 0
	for seed := range uint64(162) {
		p := newPlay(t, rand.New(rand.NewPCG(seed, 3)))
		for range 5 + p.rnd.IntN(60) {
			if p.rnd.IntN(3) == 0 {
				p.change()
			}
			for range p.rnd.IntN(40) {
				p.step(50)
			}
		}
		if seed >= 150 { // all restart with disks that are nearly full
			for _, n := range p.nodes {
				n.ReadOnly = true
				n.Restarted(n.Incarnation + 100)
			}
		}
		for range 60 * 5 { // one minute: it waits for damaged and missing nodes
			p.step(200)
		}
		p.seals, p.opens = 0, 0
		const minutes = 3
		for range minutes * 60 * 5 {
			p.step(200)
		}
		trusted, usable, readonly, calm := 0, 0, 0, true
		for _, n := range p.nodes {
			if !n.gone && p.state.Node(n.Addr) == sequencer.NodeActive && !n.ReadOnly {
				if usable++; !n.loses && !n.full && !n.hangs && !n.damaged() && (n.Failed == 0 || p.now-n.Failed >= set.Distrust) {
					trusted++
				}
			}
			if !n.gone && p.state.Node(n.Addr) == sequencer.NodeActive && n.ReadOnly {
				readonly++
				calm = calm && !n.loses && !n.full && !n.hangs && !n.damaged()
			}
		}
		if usable == 0 && readonly > set.Replicas/2 {
			open := 0
			for _, sh := range p.state.Shards() {
				if !sh.Sealed {
					open++
				}
			}
			require.Positive(t, open, "seed %d: clients wait for an open shard\n%v", seed, p)
			if calm {
				require.Zero(t, p.seals+p.opens, "seed %d: it seals over and over\n%v", seed, p)
			}
			allReadOnly++
		}
		if trusted > set.Replicas/2 {
			// A node that is not trusted is tried again from time to time.
			require.LessOrEqual(t, p.seals, len(p.nodes)*minutes, "seed %d: it seals over and over\n%v", seed, p)
		}
		if trusted == len(p.nodes) {
			require.Zero(t, p.seals+p.opens, "seed %d", seed)
		}
		if trusted >= set.Replicas && trusted == usable {
			p.settled(seed)
		}
	}
	require.Greater(t, allReadOnly, 5)
}

// settled checks the state of a cluster at rest.
func (p *play) settled(seed uint64) {
	primaries := map[string]int{}
	for _, sh := range p.state.Shards() {
		drained := slices.ContainsFunc(sh.Addrs, func(a []byte) bool { return p.state.Node(string(a)) != sequencer.NodeActive })
		if !sh.Sealed {
			primaries[string(sh.Addrs[0])]++
			require.Len(p.t, sh.Addrs, set.Replicas, "seed %d: shard %d", seed, sh.ID)
			require.False(p.t, drained, "seed %d: shard %d is on a node that is drained", seed, sh.ID)
			for _, a := range sh.Addrs {
				require.False(p.t, p.nodes[string(a)].gone, "seed %d: shard %d waits for a node that is gone\n%v", seed, sh.ID, p)
			}
			continue
		}
		if sh.Length == 0 {
			continue
		}
		whole, held := 0, false
		for _, n := range p.nodes {
			if !n.gone && n.whole(p, sh.ID) && p.state.Node(n.Addr) == sequencer.NodeActive && n.has(&sh) {
				whole++
			}
			held = held || !n.gone && n.whole(p, sh.ID)
		}
		if held {
			require.GreaterOrEqual(p.t, whole, set.Replicas, "seed %d: copies of shard %d, on %s\n%v", seed, sh.ID, sh.Addrs, p)
			require.False(p.t, drained, "seed %d: sealed shard %d is still on a node that is drained", seed, sh.ID)
		}
	}
	for _, n := range p.nodes {
		want := 0
		if !n.gone && p.state.Node(n.Addr) == sequencer.NodeActive && !n.ReadOnly {
			want = set.PerNode
		}
		require.Equal(p.t, want, primaries[n.Addr], "seed %d: open shards of %s", seed, n.Addr)
	}
}

// String describes the cluster.
func (p *play) String() (s string) {
	s = fmt.Sprintf("now %d\n", p.now)
	for _, addr := range p.addrs {
		n := p.nodes[addr]
		s += fmt.Sprintf("%s %v gone %v full disk %v loses %v hangs %v readonly %v old %v zone %q holds %v replicas %v failed %d\n",
			addr, p.state.Node(addr), n.gone, n.full, n.loses, n.hangs, n.ReadOnly, n.old, n.Zone, n.Full, n.Replicas, n.Failed)
	}
	for _, sh := range p.state.Shards() {
		s += fmt.Sprintf("shard %d on %s sealed %v length %d\n", sh.ID, sh.Addrs, sh.Sealed, sh.Length)
	}
	for _, l := range p.log[max(0, len(p.log)-30):] {
		s += l + "\n"
	}
	return s
}
