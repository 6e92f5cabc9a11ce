// Package savepoint keeps the state of a job at one moment, under a name, for other jobs to start
// from: the same job later, the same job with another parallelism, a copy.
//
//	tasks stop, sources first      each with a marker that says so (Marker.Drained)
//	Maker.Copy                     state: the job's snapshots and the change logs behind them
//	Maker.Finish                   what the last markers say: the Manifest, which names it
//	Confirm                        the store can no longer lose it
//	tasks start from it            state (Copy), time and positions (Stage)
//
// # Why the tasks stop
//
// A savepoint of states alone loses what is in flight between the tasks (pitfall G5). Here nothing
// is in flight: a source stops when it is asked to, and the tasks behind it when all their
// producers have stopped and everything they had sent is processed. So no record of the old job has
// to be kept or copied, all tasks of a stage have the same watermark, and the new job may have
// other tasks than the old one. The job stands still for as long as it takes to process what is in
// flight and to copy what has changed since the first Copy, which runs while the job does.
//
// # Another plan
//
// For the same reason the new job may have another plan. Tables are matched by stage and name,
// sources and sinks by name, stages by name (Manifest.Fit); a task copies entries under the numbers
// that the tables have in its own plan (StageFit.Translate). What is new starts empty. What the
// savepoint has and the plan does not have is an error that names it, unless it is dropped by name
// (docs/adr/0034).
//
// # Slots
//
// The state of keys that a routing table places is in slots, the key groups behind those that a hash names. A savepoint is made when
// all tasks have adopted the job's tables, and has that of each stage. A job that takes such state over begins with the table
// (Manifest.Routes), whatever tasks it has; what would be in another key group than its items go to is an error
// (docs/adr/0085).
//
// # Where it is
//
// In the job's checkpoint store, under names that no job can have, so it outlives the job and its
// records in the log:
//
//	("savepoint/NAME", stage, group)      state, as of the marker
//	("savepoint/NAME", "manifest", 0)     the manifest, written last
//	("savepoint/", "names", 0)            the list of savepoints
//
// # Invariants
//
//  1. A savepoint exists when its manifest does, and never changes. A store that loses its
//     newest writes may lose a part of it: the manifest has the position of each key group,
//     and no job starts from less. The savepoint is reported as made only after Confirm.
//  2. It holds the effects of every item that its sources had read, and of nothing else.
//  3. A job that starts from it copies its state: neither needs the other afterwards.
//  4. Makers claim a name by numbers that rise, which are the tokens of what they write. Each clears a
//     key group before it writes there. So a maker that another one has replaced, and that does
//     not know it, changes nothing that the other has copied, and writes no manifest.
package savepoint
