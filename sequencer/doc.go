// Package sequencer is the ordering core: it turns reports of how long each
// shard's sublog is into cuts, and cuts, metadata changes, seals, new shards and
// trim points into one order. It is pure: no goroutine, clock, disk or network.
// Facts are handed in, entries to persist and effects to show come out.
//
//	          Report, Propose              Ready              Advance
//	shards  ------------------> Core ----------------> disk ----------> Effects
//	writers                      |      entries to     or raft  the     to show
//	                             |      make durable           same n
//	                             v
//	                           State   a deterministic function of the entries
//
// Core belongs to whoever leads: it collects reports and proposals and is thrown
// away with the leadership, because reports are cumulative and come again. State
// is what every sequencer, and every restart, computes alike from the metalog.
// Around Core stands a file (package embedded) or raft (a cluster); neither is
// known here.
//
// # What a cut does
//
//	metalog  | open 1 | open 2 | cut 1:3 2:2 | set k=v | cut 1:5 2:2 | seal 2 |
//	LSNs                         1 2 3 | 4 5           6 7
//	                             shard 1  shard 2      shard 1
//	place      1        1                      6                       8
//
// A cut names lengths since the shard was opened. It adds, for each shard in the
// order of ids, the positions between the length that was ordered before and the
// one it names; they take the next LSNs in that order. The sequencer never sees
// a record: that a length is the end of a group, and that a majority holds it,
// is the reporter's duty.
//
// # Invariants
//
//  1. Durable before shown: an entry's effect leaves Core only in Advance, which
//     is called when the entry is durable (pitfall L9).
//  2. Applying is monotone: a cut that names less than is ordered adds nothing
//     for that shard; nothing is ever added to a sealed shard; a seal names no
//     length, so a cut that was proposed before it and lands behind it cannot
//     contradict it (L5).
//  3. Lengths are cumulative. A report may be lost, repeated or overtaken; one of
//     another incarnation than the shard was opened with is ignored (L8, L1).
//  4. A metadata change is decided when it is applied, not when it is proposed:
//     its place is the tail as of its entry, so what was ordered before it lies
//     below and everything else at or above.
//  5. A trim point never moves down and never lies above the tail (G8; why trim
//     points are entries of the metalog: docs/adr/0003).
//  6. Shard ids are given out by Apply, 1, 2, 3 …, never twice: two controllers
//     cannot mean different shards by one id (L14). How many were ever opened stays
//     known when shards are forgotten.
//  7. The tables are bounded by what is in the log. A sealed shard all of whose
//     records are trimmed is forgotten, and trim points at or below the floor, the
//     LSN below which no record exists, are dropped (docs/adr/0020).
//  8. A rescue gives up the newest records of a sealed shard and never takes that
//     back: readers have been told. The LSNs of what is lost are used for nothing else.
//  9. An entry of a level that the cluster has not reached has no effect, and the
//     snapshot of a state is one that every program of that level reads
//     (docs/adr/0021).
//  10. An ID of a sequencer stands for one store for ever (docs/adr/0019).
package sequencer
