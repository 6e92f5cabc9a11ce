// Package shard is what a turn of a shard's replica does with groups, wherever the replica runs: in a
// storage node, or in a log within a process. A turn admits the groups that wait, the caller appends
// the admitted ones, and the turn holds them until the metalog determines their outcomes; then it
// hands out what to publish, what to enter in the tag index, and what to answer.
//
//	Admit ──▶ append (caller) ──▶ Hold ──▶ cut, change, seal (storage.Replica) ──▶ Apply ──▶ publish, index, answer
//	  │            └─ disk full: Refuse                                             └─ seal, rescue: Seal, Drop
//	  └─ answered at once, or with the attempt that is under way
//
// The package is pure: it decides, and its caller acts. Groups that a restart has found on disk are read
// by a function of the caller.
//
// # Invariants
//
//  1. Each group that Admit has seen is answered exactly once: by Admit, Refuse, Apply, Drop or End.
//  2. A group that a writer sent again while the first attempt was under way gets the same answer, at
//     the same time.
//  3. What Apply hands out is in the order of positions, and each group once.
//  4. A group without effect is never published, and keeps its place in the index (its LSNs).
package shard
