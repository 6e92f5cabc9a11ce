package controller

import (
	"cmp"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/sequencer"
)

// Node is what the leader knows of a storage process. Times are in ms of any clock.
type Node struct {
	Addr        string
	Incarnation uint64
	LastReport  int64
	// Broken is when its connection broke; 0 if it is connected.
	Broken int64
	// Full holds the sealed shards of which it has everything, ascending.
	Full []sequencer.ShardID
	// Zone is the failure domain that the operator has set; empty: none.
	Zone string
	// ReadOnly is set if its disk is filled beyond the reserve and it accepts no appends.
	ReadOnly bool
	// Reports is set if it reports the health of its replicas. A program of feature level 1 does
	// not; its replicas count as healthy.
	Reports bool
	// Replicas holds its replicas of open shards, and damaged ones, by shard.
	Replicas []Replica
	// Failed is when this process lost a replica of an open shard that it had followed from the
	// start, or when a stuck replica was given up; 0: never.
	Failed int64
}

// Health is the state of a node's replica of a shard.
type Health uint8

// The states of a replica.
const (
	OK      Health = iota // it takes part
	Behind                // it lacks ordered records and is catching up
	Stale                 // it cannot take part for as long as the shard is open
	Damaged               // records on its disk are lost or damaged, and not repaired yet
)

var healthText = [...]string{"ok", "behind", "stale", "damaged"}

// String returns the state's name.
func (h Health) String() string { return healthText[h] }

// Replica is a node's replica of a shard.
type Replica struct {
	Shard  sequencer.ShardID
	Health Health
	Length uint64
	// Bytes is the size of the shard's sublog; only the primary reports it.
	Bytes uint64
	// Since is when Health changed, or, if it is Behind, when the replica last made progress.
	Since int64
}

// Restarted records that another process is at the node's address: all earlier reports are void.
func (n *Node) Restarted(incarnation uint64) {
	n.Incarnation, n.Full, n.Replicas, n.Failed = incarnation, nil, nil, 0
}

// Take applies a report of a replica's health. first is set for the first report of a session,
// which contains all replicas.
func (n *Node) Take(r Replica, first bool, now int64) {
	i, known := slices.BinarySearchFunc(n.Replicas, r.Shard, func(have Replica, id sequencer.ShardID) int { return cmp.Compare(have.Shard, id) })
	r.Since = now
	if !known {
		if r.Health == Stale && !first {
			n.Failed = now // it was in use when the shard was opened
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

// Expect records that the node must report its replica of an open shard. The replica is behind
// until the node reports it: a node whose disk hangs does not create it.
func (n *Node) Expect(shard sequencer.ShardID, now int64) {
	if n.Reports && n.replica(shard) == nil {
		n.Take(Replica{Shard: shard, Health: Behind}, false, now)
	}
}

// Grew updates the size of an open shard of which the node is primary.
func (n *Node) Grew(shard sequencer.ShardID, bytes uint64) {
	if r := n.replica(shard); r != nil {
		r.Bytes = max(r.Bytes, bytes)
	}
}

// Keep removes the reports of shards that are not open any more, except damage. It remembers
// whether the node can be trusted.
func (n *Node) Keep(state *sequencer.State, now int64, set Settings) {
	n.Replicas = slices.DeleteFunc(n.Replicas, func(r Replica) bool {
		sh := state.Shard(r.Shard)
		gone := sh == nil && uint64(r.Shard) <= state.Opened() || sh != nil && sh.Sealed && r.Health != Damaged
		if gone && r.Health == Behind && now-r.Since >= set.Stuck {
			n.Failed = now // it would be stuck with the next one, too
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

// never is a time in the infinite future.
const never = int64(1<<63 - 1)

// absent returns since when a node cannot be used, and why; never if it can.
func (v *view) absent(addr string) (since int64, why string) {
	n := v.nodes[addr]
	switch {
	case v.state.Node(addr) == sequencer.NodeRemoved:
		return 0, "it was removed"
	case n == nil && v.now-v.since >= v.set.Silence: // before that it may be about to connect
		return v.since, "it has not reported"
	case n == nil:
		return never, ""
	case n.Broken > 0 && v.now-n.Broken >= v.set.Grace:
		return n.Broken, fmt.Sprintf("its connection broke %d ms ago", v.now-n.Broken)
	case v.now-n.LastReport >= v.set.Silence:
		return n.LastReport, fmt.Sprintf("it has been silent for %d ms", v.now-n.LastReport)
	}
	return never, ""
}

// failing returns since when a node's replica of an open shard does not take part, for any reason,
// how long that is tolerated before the shard is replaced, and why. since is never if the replica
// takes part. lost reports that the shard cannot rely on the replica now.
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

// use is what a node may be used for.
type use uint8

const (
	useFully  use = iota
	useIfNone     // not trusted with more replicas if there are other nodes
	useLast       // its disk is nearly full: used only to reach a majority
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
