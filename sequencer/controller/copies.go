package controller

import (
	"slices"

	"tailrace.dev/tailrace/sequencer"
)

// holders are the nodes that hold a sealed shard, or should.
type holders struct {
	full       []*Node // live, hold the whole shard
	leaving    []*Node // live, hold the whole shard, being drained
	copying    []*Node // live, copying it
	damaged    []*Node // live, with a damaged replica
	expected   int     // not live, may be back soon
	unreported int     // not reported to this leader yet
	// keep holds the addresses that stay in the list although the nodes are not live or wait for
	// space on their disks.
	keep [][]byte
}

func (v *view) holders(sh *sequencer.Shard) (h holders) {
	for _, a := range sh.Addrs {
		since, _ := v.absent(string(a))
		switch n := v.nodes[string(a)]; {
		case v.state.Node(string(a)) != sequencer.NodeActive:
		case since == never && n == nil:
			h.unreported++
			h.keep = append(h.keep, a)
		case since != never && v.now-since < v.set.Away:
			h.expected++
			h.keep = append(h.keep, a)
		}
	}
	for _, n := range v.live {
		placed, full := isPlaced(sh, n.Addr), n.holds(sh.ID)
		if r := n.replica(sh.ID); r != nil && r.Health == Damaged {
			// Its node repairs it from the others. If that takes too long, the replica does not
			// count.
			h.damaged = append(h.damaged, n)
			full, placed = false, placed && v.now-r.Since < v.set.Away
		}
		draining := v.state.Node(n.Addr) == sequencer.NodeDraining
		switch {
		case full && draining:
			h.leaving = append(h.leaving, n)
		case full:
			h.full = append(h.full, n)
		case placed && !draining && n.ReadOnly: // unknown when there will be space
			h.keep = append(h.keep, []byte(n.Addr))
		case placed && !draining:
			h.copying = append(h.copying, n)
		}
	}
	return h
}

// isPlaced reports whether a shard is placed on the node at addr.
func isPlaced(sh *sequencer.Shard, addr string) bool {
	return slices.ContainsFunc(sh.Addrs, func(a []byte) bool { return string(a) == addr })
}

// copies handles a sealed shard (rules 7 to 9).
func (v *view) copies(sh *sequencer.Shard) {
	h := v.holders(sh)
	whole := slices.Concat(h.full, h.leaving)
	if len(whole) == 0 {
		return
	}
	if len(h.full) >= v.set.Replicas {
		v.enough(sh, &h)
		return
	}
	missing := v.set.Replicas - len(h.full) - len(h.copying) - h.unreported
	if len(h.full) > v.set.Replicas/2 { // otherwise the next loss might be the last
		missing -= h.expected
	}
	have := slices.Concat(h.full, h.copying)
	added := v.spread(have, v.room(&h), len(have)+max(0, missing), func(n *Node) int { return len(n.Full) + v.copyingTo[n.Addr] })[len(have):]
	for _, a := range added {
		v.copyingTo[string(a)]++
	}
	// Keep all nodes: one that is not live may be the only one that comes back.
	addrs := slices.Concat(addresses(whole), addresses(h.copying), added)
	back := slices.ContainsFunc(whole, func(n *Node) bool { return !isPlaced(sh, n.Addr) })
	if len(added) == 0 && !back {
		return
	}
	for _, a := range sh.Addrs {
		if !contains(addrs, a) && v.state.Node(string(a)) != sequencer.NodeRemoved {
			addrs = append(addrs, a)
		}
	}
	v.decide(sequencer.Entry{Kind: sequencer.KindPlace, Shard: sh.ID, Addrs: addrs},
		"%d of %d copies are whole, %d on their way", len(h.full), v.set.Replicas, len(h.copying)+h.expected+h.unreported)
}

// enough handles a sealed shard that Replicas live nodes hold (rule 8): it adds them to the list
// and removes others.
func (v *view) enough(sh *sequencer.Shard, h *holders) {
	var placed, others []*Node
	for _, n := range h.full {
		if isPlaced(sh, n.Addr) {
			placed = append(placed, n)
		} else {
			others = append(others, n)
		}
	}
	addrs := v.spread(placed, others, max(v.set.Replicas, len(placed)), func(n *Node) int { return len(n.Full) })
	addrs = slices.Concat(addrs, addresses(h.copying), h.keep)
	if len(placed) >= v.set.Replicas && len(addrs) == len(sh.Addrs) {
		return
	}
	v.decide(sequencer.Entry{Kind: sequencer.KindPlace, Shard: sh.ID, Addrs: addrs}, "%d of %d copies are whole", len(h.full), v.set.Replicas)
}

// room returns the nodes that may get another copy of a sealed shard.
func (v *view) room(h *holders) []*Node {
	return slices.DeleteFunc(slices.Clone(v.hosts), func(n *Node) bool {
		return n.ReadOnly || v.copyingTo[n.Addr] >= v.set.Copying || slices.Contains(h.leaving, n) || slices.Contains(h.damaged, n)
	})
}

func contains(addrs [][]byte, addr []byte) bool {
	return slices.ContainsFunc(addrs, func(a []byte) bool { return string(a) == string(addr) })
}

func addresses(nodes []*Node) (addrs [][]byte) {
	for _, n := range nodes {
		addrs = append(addrs, []byte(n.Addr))
	}
	return addrs
}

// countCopying counts the copies of sealed shards that each node is making.
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
		if sh := &shards[i]; sh.Sealed && sh.Length > sh.Lost && !v.busy[sh.ID] {
			count(sh.ID, sh.Addrs)
		}
	}
	for _, e := range pending {
		if e.Kind == sequencer.KindPlace {
			count(e.Shard, e.Addrs)
		}
	}
}

// Left is what a node that is being drained still holds.
type Left struct {
	Open   int // open shards with a replica on the node
	Sealed int // sealed shards on the node with fewer than Replicas other whole copies
	// Only is how many of those have no other whole copy: they would be lost with the node.
	Only int
	// Short is how many nodes are missing to take over what the node holds.
	Short int
}

// Drained returns what a node still holds that must move to others before it is removed.
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
		placed := isPlaced(sh, addr)
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
			if n.Addr != addr && isPlaced(sh, n.Addr) {
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
