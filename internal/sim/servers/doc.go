// Package servers runs a cluster in one process: the real sequencer servers, storage
// nodes and client logs, unchanged, inside a testing/synctest bubble. Time is virtual, the
// network (internal/sim/fakenet) and the disks (internal/sim/fakedisk) are in memory and
// fail as a plan says. What internal/sim steps are the pure cores; the loops, readers,
// recoveries and trims around them run here.
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
// A plan draws settings, tasks and faults; each kind of fault is left out, rare or frequent.
// Most plans have a theme besides (theme.go): a scene of faults that follow one another,
// with the settings and tasks under which it is interesting. Seeds take the themes in turn.
//
// # Clocks
//
// In one theme, and where shards are forgotten, processes have clocks of their own: one at
// 200 percent waits half as long as it thinks. A rate is between 50 and 200 percent (two
// processes differ by a factor of four at most); it changes when the process starts again
// (fault "clock"). What follows a process's clock is what its options say in time:
//
//   - of a sequencer: raft's Tick, and so heartbeats, elections and how often the leader
//     decides; what the controller waits for (Grace, Silence, Stale, Stuck, Away, Distrust,
//     Handover); ForgetAfter.
//   - of a storage node: FsyncInterval, CheckpointInterval.
//   - of a client: Silence.
//
// What does not: time.Now, which all processes of a bubble share, so what is measured (when
// a node was heard) is measured rightly and compared with a limit that drifts; the constants
// of the servers (heartbeats of followers and storage nodes, retries, the watch for hanging
// disks, ScrubPause); keepalive and dial timeouts of the network. No clock jumps: the
// servers' deadlines are monotonic, and a process for which time jumps is one that was
// frozen (fault "freeze").
//
// # A run
//
// Everything follows from the plan, and the plan from the seed (NewPlan). A plan is data:
// it can be written down, reduced (Shrink) and run again. A run has five phases:
//
//  1. Processes start; clients must get a log within a minute.
//  2. Tasks work while faults happen.
//  3. Faults that can last do: one storage node and one sequencer stay ill, all else is
//     healed. Every operation must be answered, and a new process must be able to append,
//     read, set and get.
//  4. All that comes back is healed; the same is asked again, and every sealed shard
//     must become whole on the nodes that are to hold it.
//  5. Replicas are compared, and all facts are judged.
//
// # Checks
//
//   - one record an LSN, one place a group, contents (truth.go): at once.
//   - reader, groups, trims, errors (reader.go, users.go): a batch is in order, holds all
//     of a group or none; ErrTrimmed only below what somebody asked to trim; ErrCorrupt only
//     if a disk was damaged.
//   - contiguous (promises 1, 5, 7), acknowledged (2), no effect (4, 6), conditions (4),
//     chains (8), order and keys (linearizability, by porcupine), last: at the end.
//   - metalog (metalog.go), every 10 ms: what a storage node has of the metalog (metadata,
//     shards, trim points, floor) is as of the entry that the node says it has followed the
//     metalog to, also while entries are received again and after a restart. Groups are
//     judged under this metadata, and readers pass shards by it. An observer follows the
//     sequencers over links that no fault befalls; what it has not been shown (a snapshot
//     came in place of entries) is not compared.
//   - liveness: phases 3 and 4. replicas: copies are equal and have no holes. leaks: when
//     all processes are killed, all goroutines end. ends: no server ends by itself unless
//     its disk is broken.
//
// # Faults that lose data
//
// What takes the contents of a disk (power cut under fsync interval, wipe, flipped bit,
// gone for good) befalls one storage node of a run, so the promises hold. In a quarter of
// the runs a storage node is gone for good, in half of them some fault is never healed
// before progress is asked for.
//
// # Known failures
//
// What is known to be broken does not fail a run, unless its plan has Known set
// (TAILRACE_SIM_KNOWN=1). Who mends one of these takes it off this list and out of the
// code:
//
//   - hanging disk: a storage node whose disk hangs for good; it is healed before progress
//     is asked for (World.minority).
//   - a reader on a storage node that speaks to its client, but hears nothing of the
//     sequencers any more, stays there, even if the shard was sealed meanwhile and other
//     replicas are full: who is isolated is so from new processes, too (World.isolateToo).
//
// # How exactly a seed is replayed
//
// With package seeded's overlay (make sim-servers) a run is nearly a function of its plan
// and the program: select, map order, timers, math/rand, locks and the order of goroutines
// come from the seed, crypto/rand from testing/cryptotest, GOMAXPROCS is 1, nothing is
// preempted, and the garbage collector runs only when the memory limit asks for it.
//
// What is promised: the plan is the same, and a run that fails fails again nearly always.
// What is not: the same story to the line. TestReplay compares two runs of a seed; of seeds
// 1, 2, 3, 5 and 6 it found three equal to the last line, and two in which the order of two
// goroutines differed at some moment (seeds 1 and 3, after 0.4 and 0.8 s of virtual time).
// What remains: what depends on addresses of goroutines and threads of the runtime itself,
// sync.Pool behind a collection, and finalizers; and of course another program (a line
// changed, another Go release, or what processes say written down: VERBOSE) is another run.
//
// Without the overlay (plain go test) the plan is the same, the interleaving is not: a
// failing seed usually fails again, not always. Processes must not wait while they hold a
// lock then, so disks neither hang nor are slow, and connections never fill up.
package servers
