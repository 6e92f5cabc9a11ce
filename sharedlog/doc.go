// Package sharedlog is the contract of Tailrace's log: one replicated, totally
// ordered sequence of tagged records. It imports nothing but the standard
// library, holds no implementation, and everything above the log (package
// tasks and up) sees the log only through it.
//
// # The picture
//
//	LSN       1   2   3   4   5   6   7   8
//	        +---+---+---+---+---+---+---+---+
//	record  | a   b | c | d   e   f | g | h |      | … |  one append = one atomic group
//	tags    | x   y | x |xy   z   y | z | x |
//	        +---+---+---+---+---+---+---+---+
//	                                          ^ Tail = 9, the next LSN
//
//	a reader of {x} sees 1 3 4 8; a reader of {x,y} sees 1 2 3 4 6 8 (each once)
//
// An LSN is dense and starts at 1. Every position in this package (a frontier,
// a tail, a trim point, a reader's From, a Place) is the first LSN that is NOT
// covered: "frontier 9" says that everything below 9 has been seen.
//
// # Promises
//
// Every implementation passes package logtest, which checks these:
//
//  1. One total order. Every reader of a tag sees the same records in the same
//     order, for ever; no gap is filled in later.
//  2. An acknowledged append is not lost while fewer than a majority of its
//     shard's replicas are lost.
//  3. A group is all or nothing, also across a seal and a crash, and its
//     records have adjacent LSNs.
//  4. A conditional group that comes after the metadata change that falsifies
//     its condition has no effect, at every reader, for ever, and its caller is
//     told so (ErrConditionFailed). It keeps its LSNs; they are never shown.
//  5. Tail is linearizable, and a read up to it ends only when everything below
//     it has been shown: an append that returned before is visible.
//  6. An append whose outcome is unknown (ErrUnknown) can be resolved: the same
//     (writer, number) sent again to the same primary is answered with its
//     first place; once the shard's seal is in the order, or after the writer
//     replaced its own instance, reading its task log up to that place tells.
//     What is not found there never happens.
//  7. Trim removes a prefix of a tag. A read below a trim point fails with
//     ErrTrimmed, never with silence. Trim points are durable before anything
//     is deleted, and a full disk still takes trims.
//  8. One writer's groups take effect in the order of their numbers, each at
//     most once and without a gap: where one has no effect, none behind it has.
//
// # Ownership of memory
//
// Append takes ownership of the group: its record data and tag slices belong to
// the log from the call on and must never be written again by anyone (the log
// hands the same memory to readers). A reader's Batch is valid until the next
// call of Next, TryNext or Close on that reader; whoever keeps bytes copies
// them.
package sharedlog
