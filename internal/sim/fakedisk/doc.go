// Package fakedisk is the disk of a simulated machine: a vfs.Mem behind handles, one for each
// process that has used it. A killed process can do nothing with its handle; a power cut removes
// what was not synced; and a disk can be full, fail to read, hang, and flip a bit.
//
//	Disk ── Open() ─▶ Handle (vfs.FS of one process) ── Kill()
//	  │
//	  ├── PowerCut, Wipe, Flip          between processes
//	  └── Limit, Hang, FailReads        at any time
//
// All waiting is on channels and timers, for testing/synctest.
package fakedisk
