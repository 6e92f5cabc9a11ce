// Package deadletter keeps the items that a job's own code could not process (docs/adr/0036): each
// stage has one more output stream, whose items are letters.
//
// Invariants:
//
//  1. A letter is in the commit that skips its item, so it is there exactly once if
//     the job's protocol guarantees that for its rows.
//  2. A plan has these streams behind all others (With), so the numbers of streams, stages
//     and tables are those of the plan without them.
//
// A letter is an ordinary item, with the event time of what failed:
//
//	┌──────────────────────────────────────────────────┬──────────────────┬──────┐
//	│ time − time of the one before (a zigzag varint)  │ length (uvarint) │ JSON │
//	└──────────────────────────────────────────────────┴──────────────────┴──────┘
package deadletter
