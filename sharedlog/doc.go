// Package sharedlog is the contract of Tailrace's log: one replicated, totally ordered sequence of
// tagged records. It imports only the standard library and holds no implementation. Everything
// above the log (package tasks and up) uses the log only through this package.
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
// LSNs are dense and start at 1. Every bound in this package (a frontier, a tail, a trim point, a
// reader's From, a Place) is the first LSN that is not covered: frontier 9 means that everything
// below 9 has been seen.
//
// # Promises
//
// Every implementation passes package logtest, which checks these promises:
//
//  1. One total order. All readers of a tag see the same records in the same order, at all times.
//     No gap is filled in later.
//  2. An acknowledged append is not lost unless a majority of its shard's replicas is lost.
//  3. A group is atomic, also across a seal and a crash: either all of its records take effect or
//     none does. They have adjacent LSNs.
//  4. A conditional group that is ordered after the metadata change that falsifies its condition
//     has no effect for any reader, ever. Its append fails with ErrConditionFailed. The group
//     keeps its LSNs, which are never shown.
//  5. Tail is linearizable, and a read up to it ends only after everything below it has been
//     shown. So the read shows every append that returned before Tail was called.
//  6. An append whose outcome is unknown (ErrUnknown) can be resolved. The same primary answers a
//     repeated (writer, number) with the LSN of the first append. Once the shard's seal is
//     ordered, or after the writer has replaced its own instance, a read of its task log up to
//     that place shows whether the group took effect. A group that is not found there never takes
//     effect.
//  7. Trim removes a prefix of a tag. A read below a trim point fails with ErrTrimmed; it never
//     skips records silently. Trim points are durable before any record is deleted, and a full
//     disk still accepts trims.
//  8. The groups of one writer take effect in the order of their numbers, each at most once and
//     without a gap: once a group has no effect, no later group of that writer has one.
//
// # Ownership of memory
//
// Append takes ownership of the group. Its record data and tag slices belong to the log from the
// call on, and the caller must not write to them again: the log hands the same memory to readers. A reader's
// Batch is valid until the next call of Next, TryNext or Close on that reader; to keep bytes
// longer, copy them.
package sharedlog
