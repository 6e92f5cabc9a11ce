// Package deadletter is what a job keeps of items that its own code could not process
// (docs/adr/0036): each stage has one more output stream, whose items are letters.
//
// What holds:
//
//  1. A letter is in the commit that passes over its item, so it is there exactly once if
//     the job's protocol makes its rows so.
//  2. A plan has these streams behind all others (With), so the numbers of streams, stages
//     and tables are those of the plan without them.
//
// A letter is an item like others, with the event time of what failed:
//
//	┌──────────────────────────────────────────────────┬──────────────────┬──────┐
//	│ time − time of the one before (a zigzag varint)  │ length (uvarint) │ JSON │
//	└──────────────────────────────────────────────────┴──────────────────┴──────┘
package deadletter
