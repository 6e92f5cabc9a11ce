// Package storage is the core of one shard: what a primary may take, and which
// LSN and fate each group gets. It is pure: no goroutine, clock, disk or
// network. Segment files (storage/segment), the tag index (storage/tagindex),
// replication and RPCs stand around it.
//
// # Facts, kept apart
//
//	        Admit            (write, fsync,         Cut            Next
//	 group --------> length    replicate)  ------> ordered ------> fates
//	        position          report: the         (metalog)        LSN, effect
//	                          sequencer's
//	                          business
//
//	sublog     |  g1  |  g2   |   g3   | g4 |
//	           0      3       5        9    11
//	                          ^ordered      ^length
//
// That a group has a place in the sublog (length), that it was reported, that a
// cut covers it (ordered) and that the shard was sealed are four facts, and they
// arrive apart. A seal drops what lies between ordered and length, however well
// replicated; so held by a majority is not acknowledged (pitfall L4).
//
// Order is the pure function of the design: the events of the metalog and the
// groups of the sublog go in, each stream in its own order and either one ahead
// of the other; fates come out as far as both reach. A primary, a backup and a
// restart compute the same.
//
// Writers is the table of who wrote which number. The primary's decides what is
// admitted; it lives and dies with the primary process, as the shard does (L1, L3),
// because a restart opens another shard. Each replica keeps one of what was ordered
// (Learn), so that behind the seal any full replica can say what became of a number
// (docs/adr/0010). What it must not forget when groups are trimmed is written down and
// sent with copies (AppendTable, docs/adr/0029).
//
// Replica puts both together for one replica of a shard, primary or backup: what is
// taken, reported, missing, full. The server's loop (storage/server) and the simulator
// (internal/sim) step the same one; the embedded log, which has one copy, uses Order
// and Writers alone.
//
// # Invariants
//
//  1. All groups of one cut are judged by the metadata as of that metalog entry:
//     changes before it count, changes after it do not (L6).
//  2. A void group keeps its LSNs and is shown to nobody; the LSNs of other
//     shards depend on this shard's count and cannot depend on fates (L6).
//  3. Where one group of a writer is void, all later ones of that writer in this
//     shard are (promise 8).
//  4. A cut ends at the end of a group (L5); one that does not is damage.
//  5. The primary takes number n of a writer only behind n - 1, answers a number
//     that it took with its first outcome and never appends it twice (L3 b).
//     A writer it does not know begins with a group that opens its session.
//  6. After the seal's place nothing is admitted and nothing is ordered.
//  7. A rescue gives up the end of a sealed shard. The LSNs of what is lost are given
//     to nothing else, and what is below keeps its fates.
package storage
