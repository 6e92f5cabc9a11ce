// Package vfs is the interface between Tailrace and the file system: the few calls that storage
// needs, and three implementations.
//
//	OS       the machine's files: pwritev, fdatasync, flock
//	Mem      files in memory that can lose power (CrashClone) or be killed
//	         (KillClone), for tests
//	Inject   any of them, with a hook that fails or shortens the n-th call
//
// GiveWay, Ballast and Reserve handle full disks for the log.
//
// # What a power cut leaves
//
// The contract is what POSIX promises and no more, and Mem is as adverse as the contract allows:
//
//  1. Data that was written before a Sync that returned nil is kept.
//  2. Every other write is kept or lost, independently of all others; of a write longer than a
//     sector each 512-byte sector independently.
//  3. A size change (Truncate, or a write past the end) that was not synced is kept or lost.
//  4. A change of a name (Create, Rename, Remove) is durable after SyncDir of its directory; until
//     then each change is kept or lost, independently. A rename is one change: never both names,
//     never neither. Syncing a file does not make its name durable.
//  5. Directories (MkdirAll) are durable when the call returns.
//
// A SIGKILL leaves everything that was written.
//
//	          write      Sync(f)    SyncDir(d)
//	data    --[lost?]------|===== kept =======
//	name    --[lost?]---------------|== kept =
package vfs
