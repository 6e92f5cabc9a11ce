// Package mem implements the log as a slice, two maps and a mutex. It is the simple twin that the
// real logs are compared with (package logtest), and a log for tests of the packages above. It
// keeps everything, trimmed or not, until the process ends.
//
//	Append ──> held ──Cut──> records[0] records[1] …      LSN = index + 1
//	           (in flight)   effect     void
//
// By default an append is cut at once, so its Pending is complete when Append returns. With
// Options.Hold appends stay in flight until Cut orders some of them: a test can then place metadata
// changes between an append and its cut, where conditions are evaluated.
//
// # Invariants
//
//  1. A group that was ordered has LSNs, with effect or without; groups without effect are never
//     shown (pitfall L6).
//  2. A writer's numbers are admitted in the order 1, 2, 3 …; a number that was admitted always
//     returns the same Pending (promise 6).
//  3. After a writer's first group without effect, none of its groups has an effect (promise 8).
//  4. Nothing is shown before it is ordered, and everything is ordered when its append is
//     acknowledged (promise 5).
package mem
