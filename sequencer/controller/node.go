package controller

import (
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
	// Full are the sealed shards that it holds all of, ascending.
	Full []sequencer.ShardID
	// Zone is the failure domain that the operator gave it; empty: none.
	Zone string
	// ReadOnly: its disk is filled beyond the watermark, it takes no appends.
	ReadOnly bool
	// Reports: it reports the health of its replicas. One that does not (a program of
	// feature level 1) counts as well.
	Reports bool
	// Replicas are those of open shards, and damaged ones, by shard.
	Replicas []Replica
	// Failed is when this process lost a replica of an open shard that it had followed
	// from the beginning, or when one was given up that was stuck; 0: never.
	Failed int64
}

// Health is how a node's replica of a shard is.
type Health uint8

// The states of a replica.
const (
	OK      Health = iota // it takes part
	Behind                // it lacks ordered records, and is catching up
	Stale                 // it cannot take part for as long as the shard is open
	Damaged               // records on its disk are lost or damaged, and not mended yet
)

var healthText = [...]string{"ok", "behind", "stale", "damaged"}

// String returns the state's name.
func (h Health) String() string { return healthText[h] }

// Replica is how a node's replica is.
type Replica struct {
	Shard  sequencer.ShardID
	Health Health
	Length uint64
	// Bytes of the shard's sublog; only the primary reports them.
	Bytes uint64
	// Since is when Health changed, or, while it is Behind, when it last made progress.
	Since int64
}

// Restarted takes note that another process is at the node's address: nothing that the
// one before has said holds.
func (n *Node) Restarted(incarnation uint64) {
	n.Incarnation, n.Full, n.Replicas, n.Failed = incarnation, nil, nil, 0
}

// Take takes a report of a replica's health. first: it is of the first report of a
// session, which names all replicas.
func (n *Node) Take(r Replica, first bool, now int64) {
	i, known := slices.BinarySearchFunc(n.Replicas, r.Shard, func(have Replica, id sequencer.ShardID) int { return cmp.Compare(have.Shard, id) })
	r.Since = now
	if !known {
		if r.Health == Stale && !first {
			n.Failed = now // it was there when the shard was opened
		}
		n.Replicas = slices.Insert(n.Replicas, i, r)
		return
	}
	old := &n.Replicas[i]
	if r.Health == Stale && old.Health != Stale {
		n.Failed = now
	}
	if r.Health == old.Health && (r.Health != Behind || r.Length == old.Length) {
		r.Since = old.Since
	}
	r.Bytes = old.Bytes
	*old = r
}

// Expect takes note that the node is to report a replica of an open shard: as long as it
// has said nothing of it, the replica is behind. A node whose disk hangs does not make it.
func (n *Node) Expect(shard sequencer.ShardID, now int64) {
	if n.Reports && n.replica(shard) == nil {
		n.Take(Replica{Shard: shard, Health: Behind}, false, now)
	}
}

// Grew takes note of the size of an open shard of which the node is primary.
func (n *Node) Grew(shard sequencer.ShardID, bytes uint64) {
	if r := n.replica(shard); r != nil {
		r.Bytes = max(r.Bytes, bytes)
	}
}

// Keep forgets what was reported of shards that are not open any more, but for damage, and
// for whether the node can be trusted.
func (n *Node) Keep(state *sequencer.State, now int64, set Settings) {
	n.Replicas = slices.DeleteFunc(n.Replicas, func(r Replica) bool {
		sh := state.Shard(r.Shard)
		gone := sh == nil && uint64(r.Shard) <= state.Opened() || sh != nil && sh.Sealed && r.Health != Damaged
		if gone && r.Health == Behind && now-r.Since >= set.Stuck {
			n.Failed = now // it would be as stuck with the next one
		}
		return gone
	})
}

func (n *Node) replica(shard sequencer.ShardID) *Replica {
	i, ok := slices.BinarySearchFunc(n.Replicas, shard, func(have Replica, id sequencer.ShardID) int { return cmp.Compare(have.Shard, id) })
	if !ok {
		return nil
	}
	return &n.Replicas[i]
}

// holds reports whether the node holds all of a sealed shard.
func (n *Node) holds(shard sequencer.ShardID) bool {
	_, ok := slices.BinarySearch(n.Full, shard)
	return ok
}

// never is a time that does not come.
const never = int64(1<<63 - 1)

// absent returns since when a node cannot be used, and why; never: it can.
func (v *view) absent(addr string) (since int64, why string) {
	n := v.nodes[addr]
	switch {
	case v.state.Node(addr) == sequencer.NodeRemoved:
		return 0, "it was removed"
	case n == nil && v.now-v.since >= v.set.Silence: // before that it may be on its way to this leader
		return v.since, "nothing was heard of it"
	case n == nil:
		return never, ""
	case n.Broken > 0 && v.now-n.Broken >= v.set.Grace:
		return n.Broken, fmt.Sprintf("its connection broke %d ms ago", v.now-n.Broken)
	case v.now-n.Heard >= v.set.Silence:
		return n.Heard, fmt.Sprintf("it has been silent for %d ms", v.now-n.Heard)
	}
	return never, ""
}

// failing returns since when a node's replica of an open shard does not take part, for
// whatever reason, how long that may last before it is replaced, and why; never: it
// takes part. lost: the shard cannot count on it now.
func (v *view) failing(sh *sequencer.Shard, addr string) (since, grace int64, why string, lost bool) {
	if since, why := v.absent(addr); since != never {
		return since, v.set.Away, why, true
	}
	n := v.nodes[addr]
	if n == nil {
		return never, 0, "", false
	}
	r := n.replica(sh.ID)
	if !n.Reports || r == nil {
		return never, 0, "", false
	}
	ago := v.now - r.Since
	switch r.Health {
	case Stale:
		return r.Since, v.set.Stale, fmt.Sprintf("its replica has been stale for %d ms", ago), true
	case Damaged:
		return r.Since, v.set.Away, fmt.Sprintf("its replica has been damaged for %d ms", ago), false
	case Behind:
		if ago >= v.set.Stuck {
			return r.Since, v.set.Stuck, fmt.Sprintf("its replica is behind and has made no progress for %d ms", ago), true
		}
	}
	return never, 0, "", false
}

// use says what a node may be used for now.
type use uint8

const (
	useFully  use = iota
	useIfNone     // it is not trusted with more replicas while there are others
	useLast       // its disk is nearly full: only so that a majority is there at all
	useNot
)

// use returns what a node may be used for now.
func (v *view) use(n *Node) use {
	if since, _ := v.absent(n.Addr); since != never || v.state.Node(n.Addr) != sequencer.NodeActive {
		return useNot
	}
	if n.ReadOnly {
		return useLast
	}
	if n.Failed > 0 && v.now-n.Failed < v.set.Distrust {
		return useIfNone
	}
	for i := range n.Replicas {
		if r := &n.Replicas[i]; r.Health == Behind && v.now-r.Since >= v.set.Stuck {
			return useIfNone
		}
	}
	return useFully
}
