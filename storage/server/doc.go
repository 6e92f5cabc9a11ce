// Package server is a storage node as a process: replicas of shards, on one disk,
// behind one address.
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
//	             └─ lost the thread: stale ── copied from a full one
//
// The primary of a shard is the process that the metalog names by address and
// incarnation; a process that starts anew has another incarnation, so it is never
// primary of what was opened before (pitfall L1). Backups go on where their disk
// ends, as long as they have followed the metalog; one that has lost data below what
// it knew to be ordered, or that meets a snapshot in place of events, is stale: it
// acknowledges nothing and shows nothing, until the seal lets it copy; what its disk
// holds stays until the copy is whole.
//
// # Invariants
//
//  1. Written before reported: a group's bytes are with the operating system (or on
//     disk, under always) before the length that covers them leaves the process, on
//     a backup as on the primary (L9). Lengths are ends of groups.
//  2. A backup states the length that it holds when a stream begins, and the primary
//     goes on from there, not from what it remembers (L8).
//  3. An append is answered when the primary has applied the cut that covers it
//     (L4), or the seal that drops it.
//  4. A replica shows readers what it holds, has fates for and has indexed, and its
//     frontier ends at the first ordered position of which that is not so (L7).
//  5. A frontier goes with the number of shards that were opened below it (L2).
//  6. Replicas of an open shard are never exchanged; a sealed one is copied whole, or
//     its missing end is fetched, with the fates, from a replica that is full (L6,
//     L13).
//  7. Only who holds a replica's turn touches its sublog: the loop, or, at rest,
//     whoever has brought something, for one turn; readers go through hub and index.
//  8. Segments are deleted by trim points that all cursors know, whichever way the node
//     heard of them: a reader gets records or ErrTrimmed.
//  9. A copy is whole when groups and trimmed ranges reach its end without a gap, and
//     this node knows the trim points that explain the ranges; what cannot be read is
//     an error at the source (docs/adr/0029). Of a number that was taken nobody hears
//     that it is not there.
//  10. A full disk ends nothing: what needs room is refused (appends) or put off, and
//     goes on when there is room; trims pass, in the room of the ballast. Appends are
//     refused while less than the reserve is free (docs/adr/0024). Nothing is
//     acknowledged of a shard before a restart would know that this node takes part in it.
//  11. The table is as of its index at every moment: events that come again, for a
//     replica that is further behind, do not change it. It is written before the
//     replicas' checkpoints.
//  12. A closed segment that is damaged or missing is an error for its readers, who go
//     to another replica, until it has been fetched from one (mend.go). So is the end of a
//     sealed shard that is missing here and that no other replica shows (copy.go). The
//     scrubber reads all of them in turn, and finds also what differs from other replicas
//     (scrub.go). Recovery deletes nothing of which it is not sure that no record that
//     counts was in it.
//  13. A body stays as the client has encoded it, with the checksums of its records,
//     wherever it goes; readers are sent those checksums, never ones computed here
//     (docs/adr/0023).
//
// # On disk
//
//	segments/       of all replicas, with the list of the closed ones; the footer of a
//	                closed one holds runs and fates
//	catalogue/      tag → closed segments (pebble)
//	table           what the metalog says of shards, metadata and trim points
//	order-<shard>   a replica's checkpoint: its Order, and the fates of its groups in
//	                segments that are not closed
//	writers-<shard> a replica's table of writers: all that is known of who wrote what
//	                was trimmed
//	NODE            the layout, and the address that the data belongs to
//	BALLAST         room that is given up on a full disk, for the table and checkpoints
//
// Checkpoints are caches: from an older one, or none, the same fates follow from the
// metalog, as long as that goes back far enough; else the replica is stale.
package server
