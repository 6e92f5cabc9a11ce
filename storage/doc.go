// Package storage is the core of one shard: it decides which groups a primary accepts, and which
// LSN and outcome each group gets. It is pure: it has no goroutine, clock, disk or network. Segment
// files (storage/segment), the tag index (storage/tagindex), replication and RPCs are built around
// it.
//
// # Four separate facts
//
//	        Admit            (write, fsync,         Cut            Next
//	 group --------> length    replicate)  ------> ordered ------> outcomes
//	        position          report: to the        (metalog)       LSN, effect
//	                          sequencer
//
//	sublog     |  g1  |  g2   |   g3   | g4 |
//	           0      3       5        9    11
//	                          ^ordered      ^length
//
// That a group has a position in the sublog (length), that it was reported, that a cut covers it
// (ordered) and that the shard is sealed are four facts, and they become known separately. A seal
// drops the groups between ordered and length, however many replicas hold them; so a group that a
// majority holds is not yet acknowledged (pitfall L4).
//
// Order is a pure function. Its inputs are the events of the metalog and the groups of the sublog,
// each in its own order, and either may be ahead of the other. Its output is the Outcome of each of
// the groups that both have reached. A primary, a backup and a restarted replica compute the same
// outcomes.
//
// Writers is the table of the group numbers of each writer. The primary's table decides what is
// admitted. It ends with the primary process, as the shard does (L1, L3), because a restart opens
// another shard. Each replica keeps a table of the ordered groups (Learn), so that any full replica
// can return the outcome of a number after the seal (docs/adr/0010). The part that must survive
// when groups are trimmed is written to disk and sent with copies (AppendTable, docs/adr/0029).
//
// Replica combines both for one replica of a shard, primary or backup: it decides what is accepted,
// reported and missing, and when the replica is full. The server's loop (storage/server) and the
// simulator (internal/sim) step the same Replica. The embedded log, which has one copy, uses Order
// and Writers alone.
//
// # Invariants
//
//  1. The groups of a cut are judged by the metadata as of that metalog entry: changes before it
//     count, changes after it do not (L6).
//  2. A void group keeps its LSNs and no reader sees it. The LSNs of other shards depend on this
//     shard's count, and cannot depend on outcomes (L6).
//  3. If a group of a writer is void, all later groups of that writer in this shard are void
//     (promise 8).
//  4. A cut ends at the end of a group (L5); a cut that does not is damage.
//  5. The primary accepts number n of a writer only after n - 1. It answers a number that it has
//     accepted with its first outcome, and never appends it twice (L3 b). The first group of an
//     unknown writer must open its session.
//  6. Nothing is admitted after the seal, and nothing is ordered after the seal's place.
//  7. A rescue gives up the end of a sealed shard. The LSNs of the lost records are not reused, and
//     the records below keep their outcomes.
package storage
