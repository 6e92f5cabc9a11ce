// Package embedded simulates the embedded log in one process, from a seed: the real
// sharedlog/embedded, unchanged, in a testing/synctest bubble with virtual time, on a disk in
// memory (internal/sim/fakedisk) that fails according to a plan.
//
//	seed ─► Plan ─► World: life 1 ─► life 2 ─► …     one Open each, on the same disk
//	                  │
//	                  ├─ users: writers, fenced writers, readers, a trimmer, keys, Last
//	                  ├─ faults: a disk that is full, or hangs, for a while
//	                  ├─ between lives: closed, or SIGKILL or power cut at some time or
//	                  │  before some call of the disk (also one of Open); a bit of a closed
//	                  │  segment flipped, or the segment's file gone; a copy of the list, the
//	                  │  ballast or the only metalog file gone; a disk that is full in Open
//	                  └─ truth: the answers that users got ─► checks
//
// # What a life must find
//
// The tail after Open must not be below what the previous life promised: everything that a user was
// told or has seen, except that a power cut under fsync interval or never may take all but what
// Stats reported as durable. What lies above the tail is forgotten, and its LSNs may be used again:
// what is left is a prefix of the order. Everything known below the tail must be shown again.
//
// # Checks
//
//   - contiguous: a reader has shown every known record of its tags, or fails with ErrTrimmed (only
//     below a requested trim, and never if it began at Oldest before any later trim), or with
//     ErrCorrupt (only if a segment was damaged).
//   - one record for an LSN, one place for a group, contents, whole groups.
//   - acknowledged; order: what starts later has a higher LSN, also the tail; no effect: a group
//     that was refused, had no effect, or was missing after a restart never appears.
//   - conditions, both ways; chains: a writer's groups are in order, without a gap.
//   - keys: values are never set twice, so operations are linearizable if each value follows from
//     the one before, and no operation finds a value that had been replaced.
//   - opens: after all this Open fails only if the metalog, or a segment that was not closed yet,
//     is gone or damaged. The error says which, and Open works when that is put back.
//   - trims that have returned still hold in the next life, and trims work on a full disk.
//   - progress: without a fault an append, a read and a change finish within a minute.
//
// # Exactly one run for a seed
//
// The plan and each user's draws depend only on the seed, with GOMAXPROCS=1. The order of
// goroutines does so only with the overlay of package seeded; without the overlay disks are never
// slow either (make sim-embedded builds with it).
package embedded
