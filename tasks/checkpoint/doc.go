// Package checkpoint keeps the state of tasks outside the log, so that it can be restored without
// the whole change log (Impeller §3.5; ADR 0015).
//
// A snapshot here is the change log, compacted. The task itself does nothing for it: a Follower
// reads what its task has committed, as a standby would, and writes the newest value of each key
// into a Store, together with the position up to which the values are current:
//
//	change log   k1=a  k2=b  k1=c  del k2  k3=d | k1=e …
//	                                            ^ position
//	store        k1=c  k3=d      "up to here"
//
// To recover a key group: load its entries, then apply the change log from the position.
//
// # Why that is safe
//
//  1. What a Follower takes is committed: changes are in their marker's group, under
//     the instance's condition (ADR 0006), or wait for their commit record (ChangeLog).
//     So a store never holds uncommitted changes (pitfall T13). Nor does it hold what a
//     power failure could remove from the log: a Follower stays below
//     sharedlog.Stats.Durable.
//  2. Replay sets entries by key, a later one over an earlier one. A store that is ahead
//     of its position (its writer was killed between two batches) becomes right by the
//     replay: whatever is newer in it occurs again in a later record.
//  3. A position moves with the last entries that it covers, or after them; and only if
//     it is where the writer expects it. A store that has lost its newest writes (a
//     replica that took over, a truncated append-only file) refuses the next ones, and a
//     new Follower starts from the position in the store.
//  4. One writer: each instance of a task brings a token that rises with every instance
//     (the place in the log where it became the only one). A store refuses a token lower
//     than the highest it has seen, so no zombie overwrites new values with old ones.
//  5. The change log is trimmed to a position only when a marker has named it, and only to
//     the one named before: what 3. starts from is still there (pitfall G3).
//  6. If a key is inserted and deleted between two writes, and the store is known not to
//     hold it, neither is written. The Follower knows that from where in the log the key
//     was inserted, and not from the store's position, which the store may be ahead of.
//
// A job whose tasks commit together has no change log. Its tasks write the changes of each
// checkpoint into the same Store, through Deltas.
package checkpoint
