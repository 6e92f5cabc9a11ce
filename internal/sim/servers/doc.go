// Package servers runs a cluster in one process: the real sequencer servers, storage nodes and
// client logs, unchanged, inside a testing/synctest bubble. Time is virtual, and the network
// (internal/sim/fakenet) and the disks (internal/sim/fakedisk) are in memory and fail according to
// a plan. internal/sim runs only the pure cores; this package also runs the loops, readers,
// recoveries and trims around them.
//
//	seed ─► Plan ─► World ─┬─ machines: sequencer/server, storage/server on a disk each
//	                       ├─ users: sharedlog/client, with tasks (writers, instances,
//	                       │  readers, trimmers, keys, tails, lasts)
//	                       ├─ faults: kill, power cut, wipe, flipped bit, gone for good,
//	                       │  full, hanging or failing disk, freeze, cut, isolation, delay,
//	                       │  a clock that is fast or slow
//	                       ├─ truth: what users did and were shown ─► checks
//	                       └─ metalog: what sequencers show, and storage nodes have of it
//
// # Plans
//
// A plan draws settings, tasks and faults; each kind of fault is absent, rare or frequent. Most
// plans also have a theme (theme.go): a sequence of faults, with the settings and tasks under which
// it is interesting. Seeds use the themes in turn.
//
// # Clocks
//
// In one theme, and where shards are forgotten, processes have clocks of their own: one at 200
// percent waits half as long as its options say. Rates are between 50 and 200 percent (two
// processes differ by a factor of four at most); a rate changes when the process restarts (fault
// "clock"). A process's clock affects the durations among its options:
//
//   - of a sequencer: raft's Tick, and so heartbeats, elections and how often the leader decides;
//     the controller's limits (Grace, Silence, Stale, Stuck, Away, Distrust, Handover);
//     ForgetAfter.
//   - of a storage node: FsyncInterval, CheckpointInterval.
//   - of a client: Silence.
//
// It does not affect time.Now, which all processes of a bubble share: what is measured (when a node
// message) is correct and is compared with a limit that drifts. Nor does it affect the servers'
// constants (heartbeats of followers and storage nodes, retries, the watch for hanging disks,
// ScrubPause) or the network's keepalive and dial timeouts. Clocks do not jump: the servers'
// deadlines are monotonic, and a process for which time jumps is one that was frozen (fault
// "freeze").
//
// # A run
//
// A run depends only on the plan, and the plan on the seed (NewPlan). A plan is data: it can be
// written down, reduced (Shrink) and run again. A run has five phases:
//
//  1. Processes start; clients must get a log within a minute.
//  2. Tasks work while faults happen.
//  3. Faults that can last remain: one storage node and one sequencer stay faulty, everything else
//     is healed. Every operation must be answered, and a new process must be able to append, read,
//     set and get.
//  4. Everything that comes back is healed; the same is required again, and every sealed shard
//     must become complete on the nodes that should hold it.
//  5. Replicas are compared, and all facts are checked.
//
// # Checks
//
//   - one record for an LSN, one place for a group, contents (truth.go): at once.
//   - reader, groups, trims, errors (reader.go, users.go): a batch is in order, and holds all of a
//     group or none; ErrTrimmed only below a requested trim; ErrCorrupt only if a disk was damaged.
//   - contiguous (promises 1, 5, 7), acknowledged (2), no effect (4, 6), conditions (4), chains
//     (8), order and keys (linearizability, by porcupine), last: at the end.
//   - metalog (metalog.go), every 10 ms: what a storage node has of the metalog (metadata, shards,
//     trim points, floor) is the state as of the entry up to which the node says it has followed,
//     also while it receives entries again and after a restart. Groups are evaluated against this
//     metadata, and readers pass shards by it. An observer follows the sequencers over links
//     without faults; entries that it was not shown (it got a snapshot instead) are not compared.
//   - liveness: phases 3 and 4. replicas: copies are equal and have no holes. leaks: when all
//     processes are killed, all goroutines end. ends: no server ends by itself unless its disk is
//     broken.
//
// # Faults that lose data
//
// Faults that destroy the contents of a disk (power cut under fsync interval, wipe, flipped bit,
// gone for good) happen to only one storage node of a run, so the promises still hold. In a quarter
// of the runs a storage node is gone for good; in half of them some fault is not healed before
// progress is required.
//
// # Known failures
//
// Known defects do not fail a run unless its plan has Known set (TAILRACE_SIM_KNOWN=1). A
// change that fixes one of them removes it from this list and from the code:
//
//   - hanging disk: a storage node whose disk hangs forever; it is healed before progress is
//     required (World.minority).
//   - a reader stays on a storage node that answers its client but receives nothing from the
//     sequencers any more, even if the shard was sealed meanwhile and other replicas are full; so
//     new processes cannot reach an isolated node either (World.isolateToo).
//
// # How exactly a seed is replayed
//
// With package seeded's overlay (make sim-servers) a run nearly depends only on its plan and the
// program: select, map order, timers, math/rand, locks and the order of goroutines come from the
// seed, crypto/rand from testing/cryptotest, GOMAXPROCS is 1, nothing is preempted, and the garbage
// collector runs only when the memory limit requires it.
//
// Promised is that the plan is the same and that a failing run nearly always fails again. Not
// promised is the same story to the line. TestReplay compares two runs of a seed: of seeds 1, 2, 3,
// 5 and 6 it found three equal to the last line, and two in which the order of two goroutines
// differed at some moment (seeds 1 and 3, after 0.4 and 0.8 s of virtual time). Sources of
// differences that remain are addresses of goroutines and of the runtime's own threads, sync.Pool
// after a collection, and finalizers. And a different program (a changed line, another Go release,
// or VERBOSE, which records the processes' messages) gives a different run.
//
// Without the overlay (plain go test) the plan is the same, the interleaving is not: a failing seed
// usually fails again, but not always. Processes must then not wait while they hold a lock, so
// disks neither hang nor are slow, and connections never fill up.
package servers
