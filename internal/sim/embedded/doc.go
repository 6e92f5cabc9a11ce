// Package embedded plays the embedded log in one process, from a seed: the real
// sharedlog/embedded, unchanged, in a testing/synctest bubble with virtual time, on a disk
// in memory (internal/sim/fakedisk) that fails as a plan says.
//
//	seed ─► Plan ─► World: life 1 ─► life 2 ─► …     one Open each, on the same disk
//	                  │
//	                  ├─ users: writers, fenced writers, readers, a trimmer, keys, Last
//	                  ├─ faults: a disk that is full, or stands still, for a while
//	                  ├─ between lives: closed, or SIGKILL or power cut at some time or
//	                  │  before some call of the disk (also one of Open); a bit of a closed
//	                  │  segment flipped, or the segment's file gone; a copy of the list, the
//	                  │  ballast or the only metalog file gone; a disk that is full in Open
//	                  └─ truth: what users were told ─► checks
//
// # What a life must find
//
// The tail with which a log is opened is not below what the last life promised: all that
// anybody was told of or has seen; after a power cut under fsync interval and never what
// Stats said to be durable. What lies above is forgotten, and its LSNs may be used again:
// what is left is a prefix of the order. All that is known below must be shown again.
//
// # Checks
//
//   - contiguous: a reader has shown every record of its tags that anybody knows of, or
//     says ErrTrimmed (only below what was asked to be trimmed, and never to one that
//     began at Oldest before any later trim), or ErrCorrupt (only if a segment was
//     damaged).
//   - one record an LSN, one place a group, contents, whole groups.
//   - acknowledged; order: what begins later lies higher, also the tail; no effect: what was
//     refused, void or not there after a restart never appears.
//   - conditions, both ways; chains: a writer's groups lie in order, without a gap.
//   - keys: values are never set twice, so operations are linearizable if each value
//     follows from the one before, and nobody meets one that had been replaced.
//   - opens: after all this Open fails only if a segment that was not closed yet, or the
//     metalog, is gone or damaged, and says which; and it works when that is put back.
//   - trims that have returned are there in the next life, and pass on a full disk.
//   - progress: with nothing wrong an append, a reading and a change end within a minute.
//
// # Exactly one run a seed
//
// A plan and what each user draws follow from the seed, with GOMAXPROCS=1. Which of two
// goroutines comes first does so only with the overlay of package seeded, without which
// disks are not slow either (make sim-embedded builds with it).
package embedded
