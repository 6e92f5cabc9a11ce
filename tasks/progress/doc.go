// Package progress decides, from the records of a task's input, what counts and when, and what a
// task appends when it flushes and commits. It is pure: its inputs are facts (a record at an LSN),
// its outputs are decisions; it has no clock, no log, no goroutine.
//
// # The seam
//
// A commit protocol is one Protocol value with two halves. The producer's half (Flush, Commit)
// defines which atomic groups carry a task's outputs, state changes and marker. The consumer's half
// (an Inbox) defines at which record of the input an output counts:
//
//	fused    [o1 o2 … changes marker]           o counts where it is
//	marker   [o1] [o2] … [changes marker]       o counts where its marker is
//	txn      [o1] [o2] [changes] … and of the   o counts where the commit record of
//	         coordinator [c1] [c2] … [marker]   its partition is
//	unsafe   [o1] [o2] … [marker]               o counts where it is
//	aligned  [o1 marker] … [o2 barrier n] …     o counts where it is, for outside readers
//	                                            where the record of checkpoint n is
//	         (one pair of brackets = one atomic group, all of one writer, in order)
//
// A commit that is too large for one group leaves parts before it, in groups of their own. Under
// fused such a record is marked as a part (envelope.Header.Part) and counts as under marker; under
// the other protocols the table above applies unchanged:
//
//	fused    [part] [part] … [part changes marker]   all count where the marker is
//
// A consumer may commit while it processes what counts at a record (T14_between_items.txt): the
// position is that record's LSN then, and the task itself knows how many items are done. The
// contents of a marker apply only after the records that it releases.
//
// Why "where its marker is" (marker): if the outputs of two producers are interleaved, "everything
// below LSN x" is not a prefix of what is committed. Counted at their markers, in the order of
// markers, they form a prefix again: the position is the LSN behind a marker, and low is the oldest
// record that still waits for its own. A restart reads from low and takes what markers at or above
// the position cover (pitfall T2; Impeller §3.3 blocks at the head of the queue instead). Under txn
// the same holds for commit records: a transaction has several, each for the part of one stream
// that one task reads, and the marker follows them (docs/protocol-txn.md).
//
// # Invariants
//
//  1. A record counts exactly once, or never; never before its producer's commit
//     is in the log (fused, marker, txn; aligned, for outside readers).
//  2. Each producer's markers are seen as n, n+1, n+2, …: a repeat is dropped, a
//     gap is an error that stops the task (loss is detected, not survived).
//  3. A marker of a higher instance voids what lower instances of that producer
//     left without a marker (pitfall T1).
//  4. The input watermark is the minimum over all registered producers that have
//     not ended and are not idle. A watermark of +inf means that a producer is at its
//     end, before its marker says that it has ended; it does not hold event time. A
//     registered producer without a marker holds event time at MinTime (pitfall T4).
//     The input watermark never goes back.
//  5. Only markers move watermarks, and a watermark means: nothing that this producer
//     still sends has a lower time (pitfall T6).
package progress
