// Package controller decides which shards are sealed, opened and copied. It is pure: its input is
// the state that the sequencer's leader knows, its output is metalog entries. The leader proposes
// them and they end with its leadership, so a deposed controller cannot act (pitfall L14).
//
//	State (shards, nodes) ─┐
//	nodes that report  ────┼─▶ Decide ─▶ open on b c a, seal 3, place 1 on b d
//	now, settings ─────────┘
//
// A node is a storage process, identified by its address; a process that restarts there has another
// incarnation. The leader keeps for each node what it has reported, when it reported last, whether
// its connection broke, and the health of its replicas. Replicas that take part count, not nodes
// that send messages: a node whose replica of an open shard is stale, or behind without progress
// for Stuck, is lost to that shard. A replica of an open shard that a node has not reported counts
// as behind. A node that does not report health (feature level 1) takes part as long as it sends
// messages.
//
// # Rules for open shards
//
//  1. Seal a shard whose primary process is gone: another incarnation is at its address, its
//     connection has been broken for Grace, it has been silent for Silence, its replica is stuck (a
//     disk that hangs), or the operator has removed the node. A primary that this leader has never
//     reported counts as having reported when the leadership started. A process never becomes primary of the
//     shard again (L1).
//  2. Seal a shard that has lost a majority of its replicas: nothing can be ordered on it any more,
//     and writers should use another one. If the nodes are live but their replicas do not take
//     part, there must be a majority of trusted nodes for a new shard, or Away must have passed:
//     otherwise shards would be sealed and opened over and over.
//  3. Replace a shard if there can be a better one: a replica has been stale for Stale, or stuck
//     for Stuck, or its node gone for Away; one of its nodes is being drained; it was opened on
//     fewer nodes than Replicas. All that only if Replicas nodes can take a new shard. Also replace
//     a shard whose primary's disk is nearly full, if writers can use another shard. A lost backup
//     alone stops nothing.
//  4. Replace a shard that has grown to ShardBytes, to bound what a replica must catch up with and
//     what a restart reads: one at a time, the largest first.
//  5. To replace a shard, open the new one on the same primary if possible, and seal the old one
//     when a majority of the new one's replicas has taken part for Handover: writers move in the
//     meantime (sharedlog/client), so that no append meets the seal. If a node is primary of more
//     than PerNode shards, the oldest is sealed in this way.
//  6. Open shards until each usable node is primary of PerNode, if Replicas nodes can hold the
//     shard, or, when Silence has passed since the leadership started, at least a majority of that
//     number. Spread replicas over zones, then over the nodes that hold the fewest. A node that has
//     lost a replica which it had from the start, or whose replica is stuck, is used only if there
//     are no others, and is primary only then (for Distrust). A node whose disk is nearly full is
//     used only if there is no majority without it; one that is being drained or was removed,
//     never. If the disks of all nodes are nearly full and no shard is open, open one: its primary
//     refuses appends with the reason, and clients, which wait for an open shard, can trim.
//
// # Rules for sealed shards
//
//  7. Place copies until Replicas live nodes hold the whole shard. The list has the live full nodes
//     first, since readers try in this order, then those that are still copying, then new ones,
//     spread over zones. Wait for Away for a node that is gone, and for a damaged replica, which is
//     repaired from the others, unless fewer than a majority of whole copies are left. With no live
//     full holder, do nothing, since one may come back. At most Copying copies to one node are in
//     progress.
//  8. No node leaves the list before Replicas live nodes in it hold the whole shard: a node that is
//     gone may have the only copy when it comes back. A live node that holds the whole shard
//     returns to the list as long as there are fewer. When there are enough, nodes that have been
//     gone, or damaged, for Away leave the list.
//  9. A node that is being drained does not count, serves as a source, and leaves the list when
//     Replicas others in it hold the whole shard.
//
// # One at a time
//
//  10. There is one decision per shard at a time: entries that are proposed and not applied yet are
//     passed as pending, and prevent further decisions about that shard, or opens on that node.
package controller
