package controller

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/sequencer"
)

// Node is what the leader knows of a storage process. Times are in ms, of any clock.
type Node struct {
	Addr        string
	Incarnation uint64
	Heard       int64
	// Broken is when its connection broke; 0 while there is one.
	Broken int64
	// Full are the sealed shards that it holds all of.
	Full []sequencer.ShardID
}

// Settings of the controller. Times are in ms.
type Settings struct {
	Replicas int   // of each shard
	PerNode  int   // open shards that a node is primary of
	Grace    int64 // from a broken connection to a seal
	Silence  int64 // from the last word to a seal
}

// Default is what a cluster uses: a killed node's shards are sealed within 0.3 s, a
// silent one's within 1 s.
var Default = Settings{Replicas: 3, PerNode: 1, Grace: 150, Silence: 900}

// Decision is an entry to propose, and the reason for people.
type Decision struct {
	Entry sequencer.Entry
	Why   string
}

// view is what Decide works on.
type view struct {
	state   *sequencer.State
	nodes   map[string]*Node
	live    []*Node // by address
	since   int64
	now     int64
	set     Settings
	busy    map[sequencer.ShardID]bool // has a pending decision
	opening map[string]int             // pending opens, by the primary's address
	primary map[string]int             // open shards that will stay, by the primary's address
	holds   map[string]int             // replicas of open shards, by address
	out     []Decision
}

// Decide returns what is to be proposed now. since is when this leadership began;
// pending are the entries of earlier decisions that are not applied yet. Nothing
// given is kept or changed.
func Decide(state *sequencer.State, nodes []Node, pending []sequencer.Entry, since, now int64, set Settings) []Decision {
	v := &view{
		state: state, nodes: map[string]*Node{}, since: since, now: now, set: set,
		busy: map[sequencer.ShardID]bool{}, opening: map[string]int{}, primary: map[string]int{}, holds: map[string]int{},
	}
	for i := range nodes {
		n := &nodes[i]
		v.nodes[n.Addr] = n
		if _, gone := v.gone(n); !gone {
			v.live = append(v.live, n)
		}
	}
	slices.SortFunc(v.live, func(a, b *Node) int { return cmp.Compare(a.Addr, b.Addr) })
	for _, e := range pending {
		if e.Kind == sequencer.KindOpen {
			v.opening[string(e.Addrs[0])]++
			v.count(e.Addrs)
		} else {
			v.busy[e.Shard] = true
		}
	}
	shards := state.Shards()
	for i := range shards {
		if sh := &shards[i]; !sh.Sealed {
			v.open(sh)
		}
	}
	v.openMore()
	for i := range shards {
		if sh := &shards[i]; sh.Sealed && sh.Length > 0 && !v.busy[sh.ID] {
			v.copies(sh)
		}
	}
	return v.out
}

// gone reports whether a node is to be given up, and why.
func (v *view) gone(n *Node) (why string, gone bool) {
	switch {
	case n.Broken > 0 && v.now-n.Broken >= v.set.Grace:
		return fmt.Sprintf("its connection broke %d ms ago", v.now-n.Broken), true
	case v.now-n.Heard >= v.set.Silence:
		return fmt.Sprintf("it has been silent for %d ms", v.now-n.Heard), true
	}
	return "", false
}

func (v *view) alive(addr []byte) bool {
	n := v.nodes[string(addr)]
	if n == nil { // not heard of yet: it may be on its way to this leader
		return v.now-v.since < v.set.Silence
	}
	_, gone := v.gone(n)
	return !gone
}

func (v *view) count(addrs [][]byte) {
	for _, a := range addrs {
		v.holds[string(a)]++
	}
}

// open looks after an open shard (rules 1 and 2).
func (v *view) open(sh *sequencer.Shard) {
	why := ""
	first := string(sh.Addrs[0])
	switch n := v.nodes[first]; {
	case n != nil && n.Incarnation != sh.Incarnation:
		why = "another process is at its address"
	case n != nil:
		why, _ = v.gone(n)
	case !v.alive(sh.Addrs[0]):
		why = "nothing was heard of it"
	}
	if why != "" {
		why = fmt.Sprintf("primary %s: %s", first, why)
	} else {
		live := 0
		for _, a := range sh.Addrs {
			if v.alive(a) {
				live++
			}
		}
		switch {
		case live <= len(sh.Addrs)/2:
			why = fmt.Sprintf("%d of %d replicas are left", live, len(sh.Addrs))
		case len(sh.Addrs) < min(v.set.Replicas, len(v.live)):
			why = fmt.Sprintf("it has %d replicas, and there are nodes for %d", len(sh.Addrs), v.set.Replicas)
		}
	}
	if why == "" {
		v.primary[first]++
		v.count(sh.Addrs)
		return
	}
	if !v.busy[sh.ID] {
		v.out = append(v.out, Decision{sequencer.Entry{Kind: sequencer.KindSeal, Shard: sh.ID}, why})
	}
}

// openMore opens shards on nodes that are primaries of too few (rule 3).
func (v *view) openMore() {
	want := min(v.set.Replicas, len(v.live))
	if want <= v.set.Replicas/2 || want < v.set.Replicas && v.now-v.since < v.set.Silence {
		return // too few, or more may be on their way to this leader
	}
	for _, n := range v.live {
		for have := v.primary[n.Addr] + v.opening[n.Addr]; have < v.set.PerNode; have++ {
			others := slices.DeleteFunc(slices.Clone(v.live), func(o *Node) bool { return o == n })
			slices.SortStableFunc(others, func(a, b *Node) int { return cmp.Compare(v.holds[a.Addr], v.holds[b.Addr]) })
			addrs := [][]byte{[]byte(n.Addr)}
			for _, o := range others[:want-1] {
				addrs = append(addrs, []byte(o.Addr))
			}
			v.count(addrs)
			v.out = append(v.out, Decision{
				sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: n.Incarnation, Addrs: addrs},
				fmt.Sprintf("%s is primary of %d", n.Addr, have),
			})
		}
	}
}

// copies looks after a sealed shard (rule 4).
func (v *view) copies(sh *sequencer.Shard) {
	var full, copying [][]byte
	for _, n := range v.live {
		switch addr := []byte(n.Addr); {
		case slices.Contains(n.Full, sh.ID):
			full = append(full, addr)
		case slices.ContainsFunc(sh.Addrs, func(a []byte) bool { return bytes.Equal(a, addr) }):
			copying = append(copying, addr)
		}
	}
	missing := v.set.Replicas - len(full) - len(copying)
	if len(full) == 0 || missing <= 0 {
		return
	}
	addrs := slices.Concat(full, copying)
	for _, n := range v.live {
		if missing == 0 {
			break
		}
		if !slices.ContainsFunc(addrs, func(a []byte) bool { return string(a) == n.Addr }) {
			addrs = append(addrs, []byte(n.Addr))
			missing--
		}
	}
	if len(addrs) == len(full)+len(copying) {
		return // there is nobody to copy to
	}
	v.out = append(v.out, Decision{
		sequencer.Entry{Kind: sequencer.KindPlace, Shard: sh.ID, Addrs: addrs},
		fmt.Sprintf("%d of %d copies are whole, %d on their way", len(full), v.set.Replicas, len(copying)),
	})
}
