// Package pace decides when a task's next snapshot is due, and from where on its change
// log is kept. It is told how far the clock and the log have come, and knows neither.
//
// The change log is kept from a position that the store has had for a while, so that a
// store that takes over from one that was lost can go on from what it has (pitfall G3;
// Follower). And with a change record its whole segment is kept: also what others have put
// there. So what a task with state holds on disk is all that came into the log since that
// position:
//
//	       write          write          write    now
//	────────┬──────────────┬──────────────┬────────┬──▶ log
//	        at 40          at 70          at 95
//	                       ^ kept, if the store has had it for long enough
//
// "For a while" is an interval of time, or some bytes of the log, whichever is over first.
// By time alone a job at full speed holds two intervals of everything: at a gigabyte in two
// seconds, ten gigabytes.
//
// Invariants:
//
//  1. A position is let go of only when the store has had a newer one for Interval, or for
//     Bytes of the log and not less than Settles.
//  2. What is kept never goes back.
//  3. If each write ends before another Bytes have come, and Settles is over by then, what
//     is kept is not more than Bytes, twice, and three times what comes while one write is
//     made (by time: Interval likewise).
package pace
