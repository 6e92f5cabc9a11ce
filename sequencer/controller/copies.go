package controller

import (
	"slices"

	"tailrace.dev/tailrace/sequencer"
)

// holders are the nodes that hold a sealed shard, or will.
type holders struct {
	full     []*Node  // hold all of it
	leaving  []*Node  // hold all of it, and are being drained
	copying  []*Node  // will
	expected [][]byte // are gone, and will hopefully be back
	late     [][]byte // will, when there is room on their disks
}

func (v *view) holders(sh *sequencer.Shard) (h holders) {
	for _, a := range sh.Addrs {
		if since, _ := v.absent(string(a)); since != never && v.now-since < v.set.Away && v.state.Node(string(a)) == sequencer.NodeActive {
			h.expected = append(h.expected, a)
		}
	}
	for _, n := range v.live {
		placed := slices.ContainsFunc(sh.Addrs, func(a []byte) bool { return string(a) == n.Addr })
		full := n.holds(sh.ID)
		if r := n.replica(sh.ID); r != nil && r.Health == Damaged {
			// It is mended from the others. If that takes too long, it is not counted.
			full, placed = false, placed && v.now-r.Since < v.set.Away
		}
		draining := v.state.Node(n.Addr) == sequencer.NodeDraining
		switch {
		case full && draining:
			h.leaving = append(h.leaving, n)
		case full:
			h.full = append(h.full, n)
		case placed && !draining && n.ReadOnly: // who knows when there will be room
			h.late = append(h.late, []byte(n.Addr))
		case placed && !draining:
			h.copying = append(h.copying, n)
		}
	}
	return h
}

// copies looks after a sealed shard (rules 7 and 8).
func (v *view) copies(sh *sequencer.Shard) {
	h := v.holders(sh)
	if len(h.full)+len(h.leaving) == 0 {
		return
	}
	missing := v.set.Replicas - len(h.full) - len(h.copying)
	if len(h.full) > v.set.Replicas/2 { // or the next loss might be the last
		missing -= len(h.expected)
	}
	have := slices.Concat(h.full, h.copying)
	addrs := addresses(have)
	if missing > 0 {
		to := slices.DeleteFunc(slices.Clone(v.hosts), func(n *Node) bool {
			return n.ReadOnly || v.copyingTo[n.Addr] >= v.set.Copying || slices.Contains(h.leaving, n)
		})
		addrs = v.spread(have, to, len(have)+missing, func(n *Node) int { return len(n.Full) + v.copyingTo[n.Addr] })
	}
	added := addrs[len(have):]
	for _, a := range added {
		v.copyingTo[string(a)]++
	}
	left := 0
	for _, n := range h.leaving {
		if slices.ContainsFunc(sh.Addrs, func(a []byte) bool { return string(a) == n.Addr }) {
			left++
		}
	}
	done := left > 0 && len(h.full) >= v.set.Replicas
	if len(added) == 0 && !done {
		return
	}
	if len(h.full) < v.set.Replicas { // they are copied from, and readers ask them
		addrs = slices.Concat(addresses(h.full), addresses(h.leaving), addrs[len(h.full):])
	}
	addrs = slices.Concat(addrs, h.expected, h.late)
	v.decide(sequencer.Entry{Kind: sequencer.KindPlace, Shard: sh.ID, Addrs: addrs},
		"%d of %d copies are whole, %d on their way", len(h.full), v.set.Replicas, len(h.copying)+len(h.expected))
}

func addresses(nodes []*Node) (addrs [][]byte) {
	for _, n := range nodes {
		addrs = append(addrs, []byte(n.Addr))
	}
	return addrs
}

// countCopying counts the copies of sealed shards that are on their way to each node.
func (v *view) countCopying(pending []sequencer.Entry) {
	v.copyingTo = map[string]int{}
	count := func(shard sequencer.ShardID, addrs [][]byte) {
		for _, a := range addrs {
			if n := v.nodes[string(a)]; n != nil && !n.holds(shard) {
				v.copyingTo[n.Addr]++
			}
		}
	}
	shards := v.state.Shards()
	for i := range shards {
		if sh := &shards[i]; sh.Sealed && sh.Length > 0 && !v.busy[sh.ID] {
			count(sh.ID, sh.Addrs)
		}
	}
	for _, e := range pending {
		if e.Kind == sequencer.KindPlace {
			count(e.Shard, e.Addrs)
		}
	}
}

// Left is what a node holds that is to be drained before it may be removed.
type Left struct {
	Open   int // open shards that it has a replica of
	Sealed int // sealed shards that it holds and that have fewer than Replicas other whole copies
	// Only is how many of those have no other whole copy: they are lost with it.
	Only int
	// Short is how many nodes there are too few to take what it holds.
	Short int
}

// Drained returns what a node still holds that others lack.
func Drained(state *sequencer.State, nodes []Node, since, now int64, set Settings, addr string) (left Left) {
	v := &view{state: state, nodes: map[string]*Node{}, since: since, now: now, set: set}
	for i := range nodes {
		n := &nodes[i]
		v.nodes[n.Addr] = n
		if gone, _ := v.absent(n.Addr); gone == never {
			v.live = append(v.live, n)
		}
	}
	v.findHosts()
	others := 0
	for _, n := range v.hosts {
		if n.Addr != addr {
			others++
		}
	}
	left.Short = max(0, set.Replicas-others)
	shards := state.Shards()
	for i := range shards {
		sh := &shards[i]
		placed := slices.ContainsFunc(sh.Addrs, func(a []byte) bool { return string(a) == addr })
		if !sh.Sealed {
			if placed {
				left.Open++
			}
			continue
		}
		n := v.nodes[addr]
		if sh.Length == sh.Lost || !placed && (n == nil || !n.holds(sh.ID)) {
			continue
		}
		whole := 0
		for _, n := range v.holders(sh).full {
			if n.Addr != addr {
				whole++
			}
		}
		if whole < set.Replicas {
			left.Sealed++
		}
		if whole == 0 {
			left.Only++
		}
	}
	return left
}
