// Package operators is the API for jobs: typed streams, the operators on them, windows, joins, and
// functions with keyed state and timers.
//
//	job := operators.NewJob("wordcount")
//	lines := operators.FromSource(job, "lines", src, serde.String)
//	words := operators.FlatMap(lines, split)
//	byWord := operators.KeyBy(words, "words", serde.String, func(w *string) string { return *w })
//	operators.ToSink(operators.Count(byWord), "out", sink)
//	plan, err := job.Plan()
//
// A job is a graph of flows. Plan cuts it where items have to move to another task (KeyBy,
// Rebalance, PreAggregate, GlobalMerge, Forward, ToSink): there a flow becomes a stream in the log. What lies between is
// a stage; a runtime makes a chain of it for each task, in which operators call each other with
// batches. What a runtime uses of a plan is package exec. The package depends on no log, no task
// and no clock except its Runtime.
//
// Invariants:
//
//  1. A chain is used by one goroutine and is a function of the calls it gets
//     and of its Runtime's answers. No operator ranges over a map where the order
//     would be visible; timers fire in the order of (time, encoded key).
//  2. Batches are borrowed: valid during the call, only read by the receiver.
//     Items alias the log's memory. What goes into state is copied.
//  3. A batch holds items of one key group. Operators with state per key use
//     that group: a key's group is its place in the log, not computed again.
//  4. When Flush has returned nothing is held back: no partial result, no
//     change of a table, no buffered batch.
//  5. What is emitted while event time advances from w to w' has time ≥ w, so it
//     is late nowhere. The task promises w' to its consumers afterwards.
//  6. State, and the watermark that the task promises again after a restart, is all
//     that an operator remembers; timers are derived from it. After Restored a
//     task first calls Advance with the watermark that its last commit had
//     reached or was advancing to (the minimum over its inputs, not its own: the
//     commit may have fallen between two timers).
//  7. An item is late for a window when the watermark has passed the window's
//     end and its lateness; it is counted once, when no window accepts it. Late items
//     are a stream (Late); a process function may have other outputs too (Side).
//
// An item in a section of a stream (all integers zigzag varints):
//
//	┌───────────────────────────────┬───────────┬─────────┐
//	│ time − time of the one before │ key bytes │ value   │   the key only in keyed streams
//	└───────────────────────────────┴───────────┴─────────┘
//
// The first item's time is a difference to 0. Keys and values are as their serdes write them
// (package serde), without length.
//
// A function of the job that cannot process an item panics or calls Fail: the item fails. So does
// an item that cannot be decoded or is too large. The job's --on-error decides what happens
// (docs/adr/0036): the task fails, or the item is skipped, and everything that it had changed or
// emitted is undone. A panic in a goroutine that a function has started itself ends the process,
// because the task cannot recover it.
//
// A state table is named after its operator (see KeyedStream.Uid), so that a job finds its state
// again when it resumes under another plan; exec.StageSpec.Tables lists the tables.
//
// The key group of a key is exec.GroupOf(exec.HashKey(key bytes), groups), unless RouteBy names it.
package operators
