// Package exec is the seam between a job as its author wrote it (package operators) and a runtime
// that runs it (package tasks): Job.Plan makes a Plan, which has a function that makes a Chain for
// each task, and the chain uses its task by Runtime.
//
//	Plan, StageSpec, StreamSpec, TableSpec   a job cut at its repartitions
//	Chain, In, Budget, Did, PollResult       one task's operators, and the work of one call
//	Runtime, Output, Home, Fence             what a task provides for them
//	StateTable                               keyed state: its changes are logged and replayed
//	Position, Item, Metric                   what chain and task tell each other besides
//	HashKey, GroupOf                         the key group of a key
//
// Nothing here is generic: what crosses the seam is bytes, counts and times, one call a batch. The
// package imports no operator, so a runtime does not depend on operators, nor operators on a
// runtime.
package exec
