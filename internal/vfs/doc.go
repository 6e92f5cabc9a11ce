// Package vfs is the seam between Tailrace and the file system: the few calls
// that storage needs, and three fillers of them.
//
//	OS       the machine's files: pwritev, fdatasync, flock
//	Mem      files in memory that can lose power (CrashClone) or be killed
//	         (KillClone), for tests
//	Inject   any of them, with a hook that fails or shortens the n-th call
//
// and what a log does about a disk that is full: GiveWay, Ballast, Reserve.
//
// # What a power cut leaves
//
// The contract is what POSIX promises and not more, and Mem is as nasty as the
// contract allows:
//
//  1. What was written before a Sync that returned nil is there.
//  2. Every other write is there or not, independently of all others; of a
//     write longer than a sector each 512-byte sector independently.
//  3. A size change (Truncate, or a write past the end) that was not synced is
//     there or not.
//  4. A name (Create, Rename, Remove) is settled by SyncDir of its directory;
//     until then each of these steps is there or not, independently. A rename
//     is one step: never both names, never neither. Syncing a file does not
//     settle its name.
//  5. Directories themselves (MkdirAll) are settled when the call returns.
//
// What a SIGKILL leaves is simpler: everything that was written.
//
//	          write      Sync(f)    SyncDir(d)
//	data    --[lost?]------|===== kept =======
//	name    --[lost?]---------------|== kept =
package vfs
