package server

import (
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
)

// featureLevel is the feature level that this program supports.
const featureLevel = 2

// Health returns the state of the replica for the leader, which decides from it whether the shard
// can rely on this replica. report is false for an undamaged replica of a sealed shard. before is
// the ordered length at the last report: a backup is behind if it lacks a part of that.
func (r *replica) Health(before uint64, damaged bool) (h *logpb.ReplicaHealth, ordered uint64, report bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h = &logpb.ReplicaHealth{Shard: r.id, Length: r.sizes.length}
	sealed := r.shard.GetSealed()
	switch {
	case damaged:
		h.State = logpb.ReplicaHealth_DAMAGED
	case sealed:
	case r.phase == storage.PhaseStale:
		h.State = logpb.ReplicaHealth_STALE
	case r.progress.hangs:
		h.State, h.Length = logpb.ReplicaHealth_BEHIND, r.progress.length
	case r.phase == storage.PhaseOpen && !r.primary && r.sizes.length < before:
		h.State = logpb.ReplicaHealth_BEHIND
	}
	return h, r.sizes.ordered, damaged || !sealed
}

// look determines what needs a look at all segments: which replicas are damaged, and which sealed
// shards are empty because all their records were trimmed. Only keep calls it.
func (n *Node) look() {
	damaged, held := map[uint32]bool{}, map[uint32]bool{}
	for _, info := range n.store.Segments() {
		held[info.ID.Shard] = true
		if info.Damage != nil {
			damaged[info.ID.Shard] = true
		}
	}
	empty := map[uint32]bool{}
	for _, r := range n.all() {
		r.mu.Lock()
		if r.phase == storage.PhaseFull && !held[r.id] && r.shard.GetLost() == 0 {
			empty[r.id] = true
		}
		r.mu.Unlock()
	}
	n.leader.Found(damaged, empty)
}
