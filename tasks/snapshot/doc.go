// Package snapshot makes the snapshots of a running task, and reads them. A Maker follows the change
// logs of the task's key groups (checkpoint.Follower) and writes to the checkpoint store when a
// snapshot is due (package pace); key groups can be added and removed while it runs. Load and Replay
// restore state: the snapshots first, then the change logs from there on.
//
// Invariants:
//
//  1. A published snapshot covers all key groups of the task, including those that the task has
//     received from other tasks.
//  2. If a key group has a newer writer in the store, only the snapshots of that group end.
package snapshot
