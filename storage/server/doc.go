// Package server is a storage node: one process with replicas of shards on one disk, reached at one
// address.
//
//	clients ── append ──▶ ┌───────────────────────┐ ◀── follow ── a sequencer
//	                      │ replica: a loop a     │ ─── node ───▶ the leader
//	primaries ─ replicate▶│ shard; segments,      │
//	                      │ Order, Writers, index,│ ─ replicate ▶ backups
//	peers ─ fetch, ◀────▶ │ hub                   │
//	        resolve       └───────────────────────┘ ── session ─▶ readers
//
// # A shard's life on a node
//
//	opened ──▶ open ──sealed──▶ sealed ──holds all of it──▶ full ◀── placed, copied
//	             │                 ▲
//	             └─ fell behind: stale ── copied from a full one
//
// The metalog names the primary of a shard by address and incarnation. A process that restarts has
// a new incarnation, so it is never the primary of a shard opened before the restart (pitfall L1).
// A backup resumes where its disk ends if it has followed the metalog without a gap. A backup that
// has lost data below what it knew to be ordered, or that receives a snapshot in place of events,
// becomes stale: it acknowledges nothing and shows readers nothing until the shard is sealed and
// can be copied. The data on its disk stays until the copy is complete.
//
// # Invariants
//
//  1. Written before reported: the bytes of a group are in the operating system (on disk, with
//     --fsync always) before the process reports a length that covers them, on a backup as on the
//     primary (L9). A length is always the end of a group.
//  2. When a replication stream starts, the backup reports the length that it holds, and the
//     primary continues there, not where it remembers (L8).
//  3. The primary answers an append when it has applied the cut that covers the group (L4), or the
//     seal that drops it.
//  4. A replica shows readers a group when it holds the group, knows its outcome and has indexed
//     it. Its frontier ends at the first ordered position for which this is not so (L7).
//  5. A frontier is sent with the number of shards that were opened below it (L2).
//  6. The replicas of an open shard are never replaced. A sealed replica is copied as a whole, or
//     its missing end is fetched, with the outcomes, from a full replica (L6, L13).
//  7. Only a turn touches a replica's sublog and what else is in the type loop: a turn of the
//     replica's own goroutine or, when that is idle, of one that delivers an item. Readers use hub
//     and index. What a turn does with groups is package storage/shard, as in the embedded log.
//  8. Segments are deleted only below trim points that all cursors know, no matter how the node
//     learned of them: a reader gets the records or ErrTrimmed.
//  9. A copy is complete when groups and trimmed ranges reach its end without a gap, and this node
//     knows the trim points that explain the ranges. Data that cannot be read is an error at the
//     source (docs/adr/0029). A node never reports a group number that took effect as absent.
//  10. A full disk ends nothing: appends are refused, other writes are delayed until there is room.
//     Trims pass, in the space of the ballast. Appends are refused while less than the reserve is
//     free (docs/adr/0024). A node acknowledges nothing of a shard until a restart would know that
//     the node is a replica of it.
//  11. The table is always the state as of its index: events that are received again, for a replica
//     that is further behind, do not change it. It is written before the replicas' checkpoints.
//  12. A closed segment that is damaged or missing is an error for its readers, who then use another
//     replica, until the node has fetched it from one (package repair). The same holds for the end of a
//     sealed shard that is missing here and that no other replica has (copy.go). The scrubber reads
//     all closed segments in turn, and also finds data that differs from other replicas.
//     Recovery deletes a file only if it is certain that no record with effect was in it.
//  13. A body stays as the client encoded it, with the checksums of its records, on disk and on the
//     wire. Readers get these checksums, never ones computed here (docs/adr/0023).
//
// # Parts
//
// The ideas that need neither a replica's loop nor the node are packages below this one. They do not
// import it: what they need of a replica comes through an interface or a function (parts.go).
//
//	table      the metalog's state, and which trims all cursors know
//	files      small files, replaced atomically
//	sublog     a replica's segments and index, read by any goroutine
//	leader     reports to the leader of the sequencers
//	session    readers: their cursors, credit and frontiers
//	replicate  groups from a primary to its backups
//	fetch      groups from one replica to another: the missing end, or a copy
//	repair     scrubbing, and rewriting damaged segments
//
// # On disk
//
//	segments/       of all replicas, with the list of the closed ones; the footer of a
//	                closed segment holds runs and outcomes
//	catalogue/      tag → closed segments (pebble)
//	table           state of the metalog: shards, metadata and trim points
//	order-<shard>   a replica's checkpoint: its Order, and the outcomes of its groups in
//	                segments that are not closed
//	writers-<shard> a replica's table of writers: all that is known of the writers of
//	                trimmed groups
//	NODE            the layout, and the address that the data belongs to
//	BALLAST         space that is freed on a full disk, for the table and checkpoints
//
// Checkpoints are caches: from an older one, or none, a replica derives the same outcomes from the
// metalog, as long as the metalog reaches back far enough. If it does not, the replica is stale.
package server
