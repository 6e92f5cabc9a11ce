// Package checkpoint keeps the state of tasks outside the log, so that it comes back
// without the whole change log (Impeller §3.5; ADR 0015).
//
// A snapshot here is the change log, compacted. Nothing is asked of the task: a Follower
// reads what its task has committed, as a standby would, and puts the newest value of
// each key into a Store, together with the position up to which that is so:
//
//	change log   k1=a  k2=b  k1=c  del k2  k3=d | k1=e …
//	                                            ^ position
//	store        k1=c  k3=d      "up to here"
//
// To recover a key group: load its entries, apply the change log from the position on.
//
// # Why that is safe
//
//  1. What a Follower takes is committed: changes are in their marker's group, under
//     the instance's condition (ADR 0006), or wait for their commit record (ChangeLog). So
//     a store never holds what never was (pitfall T13), and it holds nothing that a power cut could still take from the
//     log: a Follower stays below sharedlog.Stats.Durable.
//  2. Entries are replayed by key, the later over the earlier. A store that is ahead of
//     its position (its writer was killed between two batches) is put right by the
//     replay: whatever is newer in it is said again by a later record.
//  3. A position moves with the last entries it speaks of, or behind them; and only from
//     where the writer took it to be. A store that has lost its newest writes (a replica
//     that took over, an append-only file cut short) refuses the next ones, and the
//     Follower begins again from the position that is there.
//  4. One writer: each instance of a task brings a token that rises with every instance
//     (the place in the log where it became the only one). A store refuses a lower
//     token than it has seen, so no zombie puts old values over new ones.
//  5. The change log is trimmed to a position only when a marker has named it, and to the
//     one named before: what 3. begins again from is still there (pitfall G3).
//  6. A key that comes and goes between two writes is not written, nor its deletion, if
//     the store is known not to hold it: not by its position, which it may be ahead of,
//     but by where in the log the key was inserted (Follower).
//
// A job whose tasks commit together has no change log. Its tasks put what each checkpoint
// changes into the same Store, by Deltas.
package checkpoint
