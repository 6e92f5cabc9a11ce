// Package savepoint keeps what a job was at one moment, under a name, for other jobs to
// begin from: the same job later, the same job with another parallelism, a copy.
//
//	tasks stop, sources first      each with a marker that says so (Marker.Drained)
//	Maker.Copy                     state: the job's snapshots and the change logs behind them
//	Maker.Finish                   what the last markers say: the Manifest, which names it
//	Settled                        the store cannot lose it any more
//	tasks begin from it            state (Copy), time and positions (Stage)
//
// # Why the tasks stop
//
// A savepoint of states alone loses what was between the tasks (pitfall G5). Here nothing
// is: a source stops when it is told to, and the tasks behind it when all their producers
// have stopped and everything they had sent is processed. So no record of the old job has
// to be kept or copied, all tasks of a stage stand at the same watermark, and the new job
// may have other tasks than the old one. The job stands still for as long as it takes to
// process what is on its way and to copy what has changed since Copy was called first,
// while it still ran.
//
// # Another plan
//
// For the same reason the new job may have another plan. Tables are matched by stage and
// name, sources and sinks by name, stages by name (Manifest.Fit); a task copies entries
// under the numbers that the tables have in its own plan (StageFit.Translate). What is new
// begins empty; what the savepoint has and the plan has not is an error that names it,
// unless it is dropped by name (docs/adr/0034).
//
// # Where it is
//
// In the job's checkpoint store, under names that no job can have, so it outlives the job
// and its records in the log:
//
//	("savepoint/NAME", stage, group)      state, as of the marker
//	("savepoint/NAME", "manifest", 0)     the manifest, written last
//	("savepoint/", "names", 0)            which there are
//
// # Invariants
//
//  1. A savepoint exists when its manifest does, and never changes. A store that loses its
//     newest writes may lose a part of it: the manifest says up to where each key group
//     goes, and nobody begins from less. Who asked for it hears that it is made after
//     Settled.
//  2. It holds the effects of every item that its sources had read, and of nothing else.
//  3. Who begins from it copies its state: neither needs the other afterwards.
package savepoint
