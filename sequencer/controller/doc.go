// Package controller decides which shards are sealed, opened and copied. It is pure:
// what the sequencer's leader knows goes in, metalog entries come out; proposed by the
// leader, they die with its leadership, so a deposed controller cannot act (pitfall
// L14).
//
//	State (shards, nodes) ─┐
//	nodes that report  ────┼─▶ Decide ─▶ open on b c a, seal 3, place 1 on b d
//	now, settings ─────────┘
//
// A node is a storage process, known by its address; a process that starts there
// anew has another incarnation. It leads a session with the leader: what it has
// reported, when it was heard, whether its connection broke, and how its replicas are.
// What counts is replicas that take part, not nodes that speak: a node whose replica of
// an open shard is stale, or behind without making progress for Stuck, is lost to that
// shard. What it has not reported of an open shard counts as behind. A node that does
// not report (feature level 1) takes part as long as it speaks.
//
// # Rules for open shards
//
//  1. Seal a shard whose primary process is gone: another incarnation is at its address,
//     its connection has been broken for Grace, it has been silent for Silence, its replica
//     is stuck (a disk that does not answer), or the operator has removed the node. A primary that was never heard by this leader counts
//     as heard when the leadership began. It never comes back to this shard (L1).
//  2. Seal one of which a majority of replicas is lost: nothing can be ordered on it any
//     more, and writers are better off elsewhere. If it is not the nodes that are gone,
//     but the replicas that do not take part, a majority of nodes that can be trusted must
//     be there for a new one, or a while must have passed since: else it would be sealed
//     and opened over and over.
//  3. Replace one that can be had better: a replica has been stale for Stale, or stuck for
//     Stuck, or its node gone for Away; a node of it is being drained; it was opened on
//     fewer nodes than Replicas. All that only if Replicas nodes can take a new one. Also
//     one whose primary's disk is nearly full, if writers can go elsewhere. A lost backup
//     alone stops nothing.
//  4. Replace one that has grown to ShardBytes, so that what a replica has to catch up
//     with, and what a restart reads, is bounded: one at a time, the largest first.
//  5. To replace is to open the new shard on the same primary, where that is possible, and to
//     seal the old one when a majority of the new one's replicas has been there for
//     Handover: writers move in the meantime (sharedlog/client), so that no append meets
//     the seal. A node that is primary of more than PerNode shards has its oldest sealed in
//     this way.
//  6. Open shards until each usable node is primary of PerNode, where Replicas nodes,
//     or, Silence after the leadership began, at least a majority of that number, can hold
//     it. Replicas are spread over zones, then over nodes that hold the fewest. A node that
//     has lost a replica which it had from the beginning, or whose replica is stuck, is
//     used only if there are no others, and is primary only then (for Distrust); one whose disk is nearly full only
//     if there is no majority without it; one that is being drained or was removed never. If the
//     disks of all nodes are nearly full and no shard is open, one is opened: its primary
//     refuses appends and says why, and clients, who wait for an open shard, can trim.
//
// # Rules for sealed shards
//
//  7. Place copies until Replicas live nodes hold all of it: the full live ones first, since
//     readers ask in this order, then those that are still copying, then new ones, spread
//     over zones. A node that is gone is waited for, for Away, and so is a damaged replica,
//     which is mended from the others; not if fewer than a majority of whole copies are
//     left. With no live full holder nothing is done, for one may come back. At most Copying
//     copies are on their way to one node.
//  8. No node leaves the list before Replicas live nodes in it hold all of the shard: one that
//     is gone may hold the only copy when it is back. A live node that holds all of it is put
//     back into the list as long as there are fewer. When there are enough, those that have
//     been gone, or damaged, for Away leave it.
//  9. A node that is being drained does not count, is copied from, and is taken from the
//     list when Replicas others in it hold all of it.
//
// # One at a time
//
//  10. One decision a shard at a time: what has been proposed and is not applied yet is
//     given back as pending, and holds further ones about that shard, or opens on
//     that node, off.
package controller
