// Package pace decides when a task's next snapshot is due, and from where on its change log is
// kept. Its caller tells it how far the clock and the log have advanced.
//
// The change log is kept from a position that the store has had for a while, so that a store that
// takes over from a lost one can continue with what it has (pitfall G3; Follower). Keeping a change
// record keeps its whole segment, including the records of others. So what a task with state keeps
// on disk is everything that was appended to the log since that position:
//
//	       write          write          write    now
//	────────┬──────────────┬──────────────┬────────┬──▶ log
//	        at 40          at 70          at 95
//	                       ^ kept, if the store has had it for long enough
//
// "For a while" is an interval of time, or a number of bytes of the log, whichever ends first. By
// time alone a job at full speed keeps two intervals of everything: at a gigabyte in two seconds,
// ten gigabytes.
//
// Invariants:
//
//  1. A position is given up only when the store has had a newer one for Interval or for
//     Bytes of the log, and not less than LossWindow.
//  2. The position from which the log is kept falls only when a key group joins, to where its
//     change log is kept from.
//  3. If each write ends before another Bytes are appended, and LossWindow is over by then, at
//     most twice Bytes are kept, and three times what is appended while one write is made
//     (by time: Interval likewise).
package pace
