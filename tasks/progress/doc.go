// Package progress decides, from the records of a task's input, what counts and
// when, and what a task appends when it flushes and commits. It is pure: facts
// go in (a record at an LSN), decisions come out; no clock, no log, no goroutine.
//
// # The seam
//
// A commit protocol is one Protocol value with two halves. The producer's half
// (Flush, Commit) says which atomic groups carry a task's outputs, state changes
// and marker. The consumer's half (an Inbox) says at which record of the input an
// output counts:
//
//	fused    [o1 o2 … changes marker]           o counts where it stands
//	marker   [o1] [o2] … [changes marker]       o counts where its marker stands
//	txn      [o1] [o2] [changes] … and of the   o counts where the commit record of
//	         coordinator [c1] [c2] … [marker]   its partition stands
//	unsafe   [o1] [o2] … [marker]               o counts where it stands
//	aligned  [o1 marker] … [o2 barrier n] …     o counts where it stands, to the outside
//	                                            where the record of checkpoint n stands
//	         (one pair of brackets = one atomic group, all of one writer, in order)
//
// A commit that is too much for one group leaves parts of it before, in groups of their
// own. Under fused such a record says that it is a part (envelope.Header.Part) and counts
// as under marker; under the other protocols the table above holds for it unchanged:
//
//	fused    [part] [part] … [part changes marker]   all count where the marker stands
//
// A consumer may commit while it processes what counts at a record (T14_between_items.txt):
// the position is that record's LSN then, and how many items are done is the task's matter.
// What a marker says holds only behind the records that it releases.
//
// Why "where its marker stands" (marker): with outputs of two producers between
// one another, "everything below LSN x" is no prefix of what is committed. Counted
// at their markers, in the order of markers, they are one again: the position is
// the LSN behind a marker, and low is the oldest record that still waits for its
// own. A restart reads from low and takes what markers at or above the position
// cover (pitfall T2; Impeller §3.3 blocks at the head of the queue instead). Under txn
// the same holds of commit records: of one transaction there are several, each for what
// one task reads of one stream, and the marker is behind them (docs/protocol-txn.md).
//
// # Invariants
//
//  1. A record counts exactly once, or never; never before its producer's commit
//     is in the log (fused, marker, txn; aligned, to the outside).
//  2. Each producer's markers are seen as n, n+1, n+2, …: a repeat is dropped, a
//     gap is an error that stops the task (loss is detected, not survived).
//  3. A marker of a higher instance voids what lower instances of that producer
//     left without a marker (pitfall T1).
//  4. The input watermark is the minimum over all registered producers that have
//     not ended and are not idle; +inf says that a producer is at its end, before the
//     marker with the end does, and holds nothing; a registered one that never spoke holds it at
//     MinTime (pitfall T4). It never goes back.
//  5. Only markers move watermarks, and they say: nothing still to come from this
//     producer has a lower time (pitfall T6).
package progress
