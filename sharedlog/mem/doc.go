// Package mem is the log as a slice, two maps and a mutex: the obviously right
// twin that the real logs are compared with (package logtest), and a log for
// tests of what lies above. It keeps everything, trimmed or not, until the
// process ends.
//
//	Append ──> held ──Cut──> records[0] records[1] …      LSN = index + 1
//	           (in flight)   effect     void
//
// Normally an append is cut at once, so its Pending is decided when Append
// returns. With Options.Hold appends stay in flight until Cut orders some of
// them: a test then places metadata changes between an append and its cut, which
// is where conditions are judged.
//
// # Invariants
//
//  1. A group that was ordered has LSNs, with effect or not; void ones are shown
//     to nobody (pitfall L6).
//  2. A writer's numbers are admitted 1, 2, 3 …; a number that was admitted is
//     answered with its one Pending for ever (promise 6).
//  3. After a writer's first void group all its groups are void (promise 8).
//  4. Nothing is shown before it is ordered, and everything is when its append
//     is acknowledged (promise 5).
package mem
