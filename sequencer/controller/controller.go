package controller

import (
	"cmp"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/sequencer"
)

// Settings configures the controller. Times are in ms.
type Settings struct {
	Replicas   int    // of each shard
	PerNode    int    // open shards that a node is primary of
	ShardBytes uint64 // size from which an open shard is replaced; 0: any
	Copying    int    // concurrent new copies of sealed shards to one node

	Grace    int64 // from a broken connection to a seal
	Silence  int64 // from the last message to a seal
	Stale    int64 // how long a stale replica of an open shard is tolerated
	Stuck    int64 // how long a replica without progress is tolerated
	Away     int64 // how long a missing node, or a damaged replica, is waited for
	Distrust int64 // how long a node that has lost a replica is used only if there is no other
	Handover int64 // from the opening of a shard to the seal of the one that it replaces
}

// Default holds the settings of a cluster: the shards of a killed node are sealed within 0.3 s,
// those of a silent one within 1 s.
var Default = Settings{
	Replicas: 3, PerNode: 1, ShardBytes: 4 << 30, Copying: 4,
	Grace: 150, Silence: 900, Stale: 1000, Stuck: 10_000, Away: 30_000, Distrust: 300_000, Handover: 500,
}

// Decision is an entry to propose, and the reason for the log.
type Decision struct {
	Entry sequencer.Entry
	Why   string
}

// view is the input and the working state of Decide.
type view struct {
	state *sequencer.State
	nodes map[string]*Node
	live  []*Node // by address
	since int64
	now   int64
	set   Settings

	hosts []*Node // may get new replicas, the best first
	good  int     // number of hosts that may be used fully

	busy      map[sequencer.ShardID]bool // shards with a pending decision
	opening   map[string]int             // pending opens, by the primary's address
	stay      map[string][]*sequencer.Shard
	holds     map[string]int // replicas of open shards that stay, by address
	copyingTo map[string]int // copies in progress, by address
	out       []Decision
}

// Decide returns the entries to propose now. since is when this leadership started; pending are the
// entries of earlier decisions that are not applied yet. Decide does not retain or change its
// arguments.
func Decide(state *sequencer.State, nodes []Node, pending []sequencer.Entry, since, now int64, set Settings) []Decision {
	v := &view{
		state: state, nodes: map[string]*Node{}, since: since, now: now, set: set,
		busy: map[sequencer.ShardID]bool{}, opening: map[string]int{}, stay: map[string][]*sequencer.Shard{}, holds: map[string]int{},
	}
	for i := range nodes {
		n := &nodes[i]
		v.nodes[n.Addr] = n
		if since, _ := v.absent(n.Addr); since == never {
			v.live = append(v.live, n)
		}
	}
	slices.SortFunc(v.live, func(a, b *Node) int { return cmp.Compare(a.Addr, b.Addr) })
	v.findHosts()
	for _, e := range pending {
		if e.Kind == sequencer.KindOpen {
			v.opening[string(e.Addrs[0])]++
			v.count(e.Addrs)
		} else {
			v.busy[e.Shard] = true
		}
	}
	v.openShards()
	v.countCopying(pending)
	shards := state.Shards()
	for i := range shards {
		if sh := &shards[i]; sh.Sealed && sh.Length > sh.Lost && !v.busy[sh.ID] {
			v.copies(sh)
		}
	}
	return v.out
}

// findHosts finds the nodes that may get replicas. It includes nodes whose disk is nearly full only
// as far as they are needed for a majority.
func (v *view) findHosts() {
	for last := useFully; last <= useLast; last++ {
		for _, n := range v.live {
			if v.use(n) == last && (last < useLast || len(v.hosts) <= v.set.Replicas/2) {
				v.hosts = append(v.hosts, n)
			}
		}
		if last == useFully {
			v.good = len(v.hosts)
		}
	}
}

func (v *view) count(addrs [][]byte) {
	for _, a := range addrs {
		v.holds[string(a)]++
	}
}

func (v *view) decide(e sequencer.Entry, format string, args ...any) {
	v.out = append(v.out, Decision{e, fmt.Sprintf(format, args...)})
}

func (v *view) seal(sh *sequencer.Shard, why string) {
	if !v.busy[sh.ID] {
		v.decide(sequencer.Entry{Kind: sequencer.KindSeal, Shard: sh.ID}, "%s", why)
	}
}

// openShards handles open shards: rules 1 to 5.
func (v *view) openShards() {
	type due struct {
		sh  *sequencer.Shard
		why string
	}
	var open []*sequencer.Shard
	shards := v.state.Shards()
	for i := range shards {
		if sh := &shards[i]; !sh.Sealed {
			if why := v.broken(sh); why != "" {
				v.seal(sh, why)
				continue
			}
			open = append(open, sh)
		}
	}
	full := v.largest(open)
	var replaced []due
	for _, sh := range open {
		why := v.worse(sh)
		if why == "" && sh == full {
			why = fmt.Sprintf("it has %d bytes", v.bytes(sh))
		}
		if why != "" {
			replaced = append(replaced, due{sh, why})
			continue
		}
		v.stay[string(sh.Addrs[0])] = append(v.stay[string(sh.Addrs[0])], sh)
		v.count(sh.Addrs)
	}
	for _, n := range v.live { // the shard was replaced for a reason that has ceased
		for len(v.stay[n.Addr]) > v.set.PerNode {
			replaced = append(replaced, due{v.stay[n.Addr][0], fmt.Sprintf("shard %d takes its place", v.stay[n.Addr][len(v.stay[n.Addr])-1].ID)})
			v.stay[n.Addr] = v.stay[n.Addr][1:]
		}
	}
	v.openMore(len(open) == 0)
	for _, d := range replaced {
		if v.successor(d.sh) {
			v.seal(d.sh, d.why)
		}
	}
}

// broken returns why an open shard cannot continue, empty if it can (rules 1 and 2).
func (v *view) broken(sh *sequencer.Shard) string {
	first := string(sh.Addrs[0])
	if since, why := v.absent(first); since != never {
		return fmt.Sprintf("primary %s: %s", first, why)
	}
	if n := v.nodes[first]; n != nil && n.Incarnation != sh.Incarnation {
		return fmt.Sprintf("primary %s: another process is at its address", first)
	}
	majority := v.set.Replicas/2 + 1
	if _, _, why, lost := v.failing(sh, first); lost && v.good >= majority {
		return fmt.Sprintf("primary %s: %s", first, why)
	}
	alive, part, reason, lostSince := 0, 0, "", int64(0)
	for _, a := range sh.Addrs {
		if since, _ := v.absent(string(a)); since == never {
			alive++
		}
		if since, _, why, lost := v.failing(sh, string(a)); lost {
			reason, lostSince = fmt.Sprintf("%s: %s", a, why), max(lostSince, since)
		} else {
			part++
		}
	}
	switch {
	case alive <= len(sh.Addrs)/2:
		return fmt.Sprintf("%d of %d replicas are left", alive, len(sh.Addrs))
	case part > len(sh.Addrs)/2:
		return ""
	case v.good >= majority, len(v.hosts) >= majority && v.now-lostSince >= v.set.Away:
		// If the nodes are not trusted, a new shard may be no better, so try only from time to
		// time.
		return fmt.Sprintf("%d of %d replicas take part; %s", part, len(sh.Addrs), reason)
	}
	return ""
}

// worse returns why an open shard must be replaced by a better one, empty if it must not (rule 3).
func (v *view) worse(sh *sequencer.Shard) string {
	first := string(sh.Addrs[0])
	if want := min(v.set.Replicas, v.good); len(sh.Addrs) < want {
		return fmt.Sprintf("it has %d replicas, and there are nodes for %d", len(sh.Addrs), want)
	}
	if n := v.nodes[first]; n != nil && n.ReadOnly { // sealed only if writers can use other shards
		return fmt.Sprintf("the disk of its primary %s is nearly full", first)
	}
	if v.good < v.set.Replicas {
		return ""
	}
	for _, a := range sh.Addrs {
		if v.state.Node(string(a)) == sequencer.NodeDraining {
			return fmt.Sprintf("%s is being drained", a)
		}
		if since, grace, why, _ := v.failing(sh, string(a)); since != never && v.now-since >= grace {
			return fmt.Sprintf("%s: %s", a, why)
		}
	}
	return ""
}

// bytes returns the size of an open shard as reported by its primary.
func (v *view) bytes(sh *sequencer.Shard) uint64 {
	if n := v.nodes[string(sh.Addrs[0])]; n != nil {
		if r := n.replica(sh.ID); r != nil {
			return r.Bytes
		}
	}
	return 0
}

// largest returns the shard that must be replaced because it has grown too large. It returns nil if
// there is none, or if another one is being replaced (rule 4).
func (v *view) largest(open []*sequencer.Shard) (largest *sequencer.Shard) {
	if v.set.ShardBytes == 0 {
		return nil
	}
	at := map[string]int{}
	for _, sh := range open {
		first := string(sh.Addrs[0])
		if at[first]++; at[first] > v.set.PerNode {
			return nil
		}
		if b := v.bytes(sh); b >= v.set.ShardBytes && (largest == nil || b > v.bytes(largest)) {
			largest = sh
		}
	}
	return largest
}

// successor reports whether the writers of a shard that is to be replaced can use another one (rule
// 5).
func (v *view) successor(old *sequencer.Shard) bool {
	first := string(old.Addrs[0])
	if n := v.nodes[first]; n != nil && v.use(n) == useFully {
		ready := 0
		for _, sh := range v.stay[first] {
			if v.ready(sh, v.set.Handover) {
				ready++
			}
		}
		return ready >= v.set.PerNode
	}
	for _, n := range v.live { // this node opens no more shards: others must take the writers
		for _, sh := range v.stay[n.Addr] {
			if n.Addr != first && !n.ReadOnly && v.ready(sh, 0) {
				return true
			}
		}
	}
	return false
}

// ready reports whether a majority of a shard's replicas, including its primary, have taken part
// for at least ms.
func (v *view) ready(sh *sequencer.Shard, ms int64) bool {
	there := 0
	for i, a := range sh.Addrs {
		n := v.nodes[string(a)]
		if n != nil && n.Reports {
			if r := n.replica(sh.ID); r == nil || r.Health != OK || v.now-r.Since < ms {
				n = nil
			}
		}
		if n != nil {
			there++
		} else if i == 0 {
			return false
		}
	}
	return there > len(sh.Addrs)/2
}

// openMore opens shards on nodes that are primaries of too few. It opens one on a node whose disk
// is nearly full if no shard is open and no other node can be primary (rule 6).
func (v *view) openMore(none bool) {
	want := min(v.set.Replicas, len(v.hosts))
	if want <= v.set.Replicas/2 || want < v.set.Replicas && v.now-v.since < v.set.Silence {
		return // too few, or more may be about to connect to this leader
	}
	for _, n := range v.live {
		if u := v.use(n); u >= useLast || u == useIfNone && v.good > v.set.Replicas/2 {
			continue
		}
		for have := len(v.stay[n.Addr]) + v.opening[n.Addr]; have < v.set.PerNode; have++ {
			addrs := v.spread([]*Node{n}, v.hosts, want, func(o *Node) int { return v.holds[o.Addr] })
			v.count(addrs)
			v.decide(sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: n.Incarnation, Addrs: addrs}, "%s is primary of %d", n.Addr, have)
		}
	}
	if n := v.hosts[0]; none && len(v.opening) == 0 && v.use(n) == useLast {
		v.decide(sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: n.Incarnation, Addrs: v.spread([]*Node{n}, v.hosts, want, func(*Node) int { return 0 })},
			"no shard is open, and the disks of all nodes are nearly full")
	}
}

// spread adds nodes to those chosen until there are want, or no more. It prefers the most usable
// nodes, then nodes in zones with the fewest replicas, then nodes with the least load. It returns
// the addresses.
func (v *view) spread(chosen, from []*Node, want int, holds func(*Node) int) (addrs [][]byte) {
	zones := map[string]int{}
	for _, n := range chosen {
		zones[n.Zone]++
		addrs = append(addrs, []byte(n.Addr))
	}
	left := slices.DeleteFunc(slices.Clone(from), func(n *Node) bool { return slices.Contains(chosen, n) })
	for len(addrs) < want && len(left) > 0 {
		best := slices.MinFunc(left, func(a, b *Node) int {
			return cmp.Or(cmp.Compare(v.use(a), v.use(b)), cmp.Compare(zones[a.Zone], zones[b.Zone]), cmp.Compare(holds(a), holds(b)), cmp.Compare(a.Addr, b.Addr))
		})
		left = slices.DeleteFunc(left, func(n *Node) bool { return n == best })
		zones[best.Zone]++
		addrs = append(addrs, []byte(best.Addr))
	}
	return addrs
}
