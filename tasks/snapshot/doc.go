// Package snapshot makes the snapshots of one task while the task runs, beside it: a Maker follows the
// change logs of the task's key groups (checkpoint.Follower) and writes to the store when a snapshot
// is due (package pace). Key groups come and go while it runs. Load and Replay read them back: the
// snapshots first, then the change logs from there on.
//
// Invariants:
//
//  1. What is published holds for all groups of the task: for those that were received, too.
//  2. A group that the store has a newer writer of ends its own snapshots only.
package snapshot
