// Package operators is what users write jobs with: typed streams, the operators
// on them, windows, joins, and functions with keyed state and timers.
//
//	job := operators.NewJob("wordcount")
//	lines := operators.FromSource(job, "lines", src, serde.String)
//	words := operators.FlatMap(lines, split)
//	byWord := operators.KeyBy(words, "words", serde.String, func(w *string) string { return *w })
//	operators.ToSink(operators.Count(byWord), "out", sink)
//	plan, err := job.Plan()
//
// A job is a graph of flows. Plan cuts it where items have to move to another
// task (KeyBy, Rebalance, PreAggregate, ToSink): there a flow becomes a stream
// in the log. What lies between is a stage; a runtime makes a Chain of it for
// each task, in which operators call each other with batches. The package is a
// leaf: it knows no log, no task and no clock but the Runtime it is given.
//
// What holds:
//
//  1. A chain is used by one goroutine and is a function of the calls it gets
//     and what its Runtime answers. No operator ranges over a map where it
//     would show; timers fire in the order of (time, encoded key).
//  2. Batches are borrowed: valid during the call, only read by the receiver.
//     Items alias the log's memory. What goes into state is copied.
//  3. A batch holds items of one key group. Operators with state per key find
//     it there: a key's group is its place in the log, not computed again.
//  4. When Flush has returned nothing is held back: no partial result, no
//     change of a table, no buffered batch.
//  5. What is emitted while event time goes from w to w' has time ≥ w, so it is
//     late nowhere. The task says w' to its consumers behind it.
//  6. State, and the watermark that the task says again after a restart, is all
//     that an operator remembers; timers are derived from it. After Restored a
//     task calls Advance, before anything else, with the watermark that its last
//     commit had reached or was on the way to (the minimum over its inputs, not
//     its own: the commit may have fallen between two timers).
//  7. An item is late for a window when the watermark has passed the window's
//     end and its lateness; it is counted once, when no window takes it. Late items
//     are a stream (Late); a process function may have others besides its result (Side).
//
// An item in a section of a stream (all integers zigzag varints):
//
//	┌───────────────────────────────┬───────────┬─────────┐
//	│ time − time of the one before │ key bytes │ value   │   the key only in keyed streams
//	└───────────────────────────────┴───────────┴─────────┘
//
// The first item's time is a difference to 0. Keys and values are as their
// serdes write them (package serde), without length.
//
// A function of the job that cannot process an item panics or calls Fail: the item fails.
// So does one that cannot be decoded or is too large. The job's --on-error says what
// becomes of it (docs/adr/0036): the task fails, or the item is passed over, with nothing
// of what it had changed or emitted by then. A panic in a goroutine that a function has
// started itself ends the process: nobody else can recover it.
//
// A table of state is named after its operator (see KeyedStream.Uid), so that a job finds
// its state again when it goes on under another plan; StageSpec.Tables lists them.
//
// The key group of a key is GroupOf(HashKey(key bytes), groups).
package operators
