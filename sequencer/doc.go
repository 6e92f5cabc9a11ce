// Package sequencer is the ordering core: it turns reports of the lengths of shards' sublogs into
// cuts, and brings cuts, metadata changes, seals, new shards and trim points into one order. It is
// pure: it has no goroutine, clock, disk or network. Its inputs are reports and proposals; its
// outputs are entries to persist and effects to show.
//
//	          Report, Propose              Ready              Advance
//	shards  ------------------> Core ----------------> disk ----------> Effects
//	writers                      |      entries to     or raft  the     to show
//	                             |      make durable           same n
//	                             v
//	                           State   a deterministic function of the entries
//
// Core belongs to the leader. It collects reports and proposals and ends with the leadership;
// reports are cumulative and are sent again. State is what every sequencer, and every restart,
// computes from the metalog. Core is used with a file (package embedded) or with raft (a cluster);
// it depends on neither.
//
// # What a cut does
//
//	metalog  | open 1 | open 2 | cut 1:3 2:2 | set k=v | cut 1:5 2:2 | seal 2 |
//	LSNs                         1 2 3 | 4 5           6 7
//	                             shard 1  shard 2      shard 1
//	place      1        1                      6                       8
//
// A cut contains lengths counted from the start of each shard. For each shard, in the order of ids,
// it orders the positions between the length that was ordered before and the length in the cut;
// they get the next LSNs. The sequencer never sees a record: the reporter must ensure that a length
// is the end of a group and that a majority holds it.
//
// # Invariants
//
//  1. Durable before shown: Core returns an entry's effect only from Advance, which is called when
//     the entry is durable (pitfall L9).
//  2. Applying is monotonic: a cut with a smaller length than is ordered adds nothing for that
//     shard; nothing is ever added to a sealed shard; a seal contains no length, so a cut that was
//     proposed before it and is ordered after it cannot contradict it (L5).
//  3. Lengths are cumulative. A report may be lost, repeated or overtaken; a report of another
//     incarnation than the shard was opened with is ignored (L8, L1).
//  4. A metadata change is decided when it is applied, not when it is proposed: its place is the
//     tail as of its entry, so what was ordered before it lies below, and everything else at or
//     above.
//  5. A trim point never moves down and is never above the tail (G8; docs/adr/0003 says why trim
//     points are entries of the metalog).
//  6. Apply assigns shard ids: 1, 2, 3 …, never twice. So two controllers cannot use one id for
//     different shards (L14). The number of shards ever opened stays known when shards are
//     forgotten.
//  7. The tables are bounded by the content of the log. A sealed shard whose records are all
//     trimmed is forgotten, and trim points at or below the floor, the LSN below which no record
//     exists, are dropped (docs/adr/0020).
//  8. A rescue gives up the newest records of a sealed shard and is never undone, because readers
//     have got the error. The LSNs of the lost records are not reused.
//  9. An entry of a level that the cluster has not reached has no effect, and every program of a
//     level can read the snapshot of a state at that level (docs/adr/0021).
//
// 10. A sequencer's ID stands for one store forever (docs/adr/0019).
package sequencer
