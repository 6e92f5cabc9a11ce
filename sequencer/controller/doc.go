// Package controller decides which shards are sealed, opened and copied. It is pure:
// what the sequencer's leader knows goes in, metalog entries come out; proposed by the
// leader, they die with its leadership, so a deposed controller cannot act (pitfall
// L14).
//
//	State (shards) ─┐
//	nodes heard of ─┼─▶ Decide ─▶ seal 3, open on b c a, place 1 on b d
//	now, settings ──┘
//
// A node is a storage process, known by its address; a process that starts there
// anew has another incarnation. It leads a session with the leader: what it has
// reported, when it was heard, and whether its connection broke.
//
// # Rules
//
//  1. Seal an open shard whose primary process is gone: another incarnation is at
//     its address, its connection has been broken for Grace, or it has been silent
//     for Silence. A primary that was never heard by this leader counts as heard when
//     the leadership began. It never comes back to this shard (L1).
//  2. Seal one of which fewer than a majority of replicas are on live nodes: nothing
//     can be ordered on it any more, and writers are better off elsewhere. A lost
//     backup alone stops nothing and seals nothing. A shard that was opened on fewer
//     nodes than Replicas is sealed when there are enough.
//  3. Open shards until each live node is primary of PerNode, where Replicas nodes,
//     or, Silence after the leadership began, at least a majority of that number,
//     are there to hold it; on the nodes that hold the fewest.
//  4. Place a copy of a sealed shard that has fewer than Replicas holders on live
//     nodes, when one of these holds all of it: the full live ones first, since
//     readers ask in this order, then those that are still copying, then a new one.
//     The order of what is lost is not forgotten: with no live full holder nothing
//     is done, for one may come back.
//  5. One decision a shard at a time: what has been proposed and is not applied yet is
//     given back as pending, and holds further ones about that shard, or opens on
//     that node, off.
package controller
