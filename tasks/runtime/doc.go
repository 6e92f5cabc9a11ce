// Package runtime runs the tasks of a job: each is one goroutine that reads its input from the log
// (or from its source), drives its chain of operators, and commits.
//
//	           log.Reader                         log.Append (several in flight)
//	               |                                        ^
//	  entry  ->  Inbox  ->  Chain.Process  ->  Output  ->  commit
//	(LSN order)    |   counts now?            sections       |  pack by consumer task
//	             Table  ->  Chain.Advance                    |  + changes + marker
//	            (producers, watermark)                       v
//	                                           Protocol.Commit: atomic groups
//
// What a task does is a pure function of its input order, its clock readings and its source;
// package progress makes every decision about what counts.
//
// # A task's life
//
//  1. fence: compare-and-set of the instance key to (number+1, nonce). Its place P
//     is the end of all predecessors: none of their appends has effect above it. If the
//     protocol has a coordinator, it learns of the instance, and P is the place
//     of its answer.
//  2. restore: the newest marker of the task log below P says where to resume; the
//     snapshots of the owned key groups, and their change logs from there up to P,
//     contain the state.
//  3. announce: an empty marker, which tells every consumer that the predecessor
//     is over (pitfall T1).
//  4. run: read, process, advance, commit; all appends are conditional on the
//     instance.
//  5. end: all producers have ended; the last marker says so, and once it is
//     acknowledged the task is done. A task whose newest marker says so already
//     is done at once (pitfall T17).
//
// An Executor runs the tasks of a job that a manager assigns to this process, each started and
// stopped by itself (Handle); a Job runs all of them. When a task is stopped, it commits what it has
// done and ends with ErrStopped, so its successor repeats nothing.
//
// # How a task commits
//
// The package knows no commit protocol. What differs between protocols is in a task's Committer
// (committer.go), which sees the task as an Engine (engine.go) and is made by the job's Commits; the
// packages below tasks/commit implement both. Everything else that the package needs to know of a
// protocol is data (progress.Capabilities). A task's life above is that of an instance that replaces
// its predecessor by itself; tasks that commit together start in an Attempt of the job.
//
// # Invariants
//
//  1. A commit falls between two units of work: items that are processed, timers that
//     fire (pitfall T14). A unit's effects are never split over commits; if they are
//     too much for a group, they are appended before the commit, in parts (bounds.go).
//  2. Groups are appended in order by one writer, so what the log holds of a task
//     is always a prefix of its commits (pitfall L3).
//  3. A failed condition ends the task: another instance has replaced it.
//  4. At most InFlight commits are unacknowledged; nothing outside the log follows
//     a commit before it is acknowledged (a file sink's bytes are determined by
//     the log's order, so writing them early or twice is harmless; pitfall T12).
package runtime
