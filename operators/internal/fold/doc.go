// Package fold has the operators that fold the items of a key: aggregates, windows, sessions, windows
// of a number of items, and those that hold items back. Package operators adds them to a job.
package fold

import "tailrace.dev/tailrace/operators/internal/chain"

// A chain calls an operator only by the interfaces that it implements.
var (
	_ chain.Stateful = (*Windows[int, int])(nil)
	_ chain.Advancer = (*Windows[int, int])(nil)
	_ chain.Flusher  = (*Windows[int, int])(nil)
	_ chain.Stateful = (*aggregateOp[int, int, int])(nil)
	_ chain.Advancer = (*aggregateOp[int, int, int])(nil)
	_ chain.Flusher  = (*aggregateOp[int, int, int])(nil)
	_ chain.Flusher  = (*preAggregateOp[int, int, int])(nil)
	_ chain.Holder   = (*preAggregateOp[int, int, int])(nil)
	_ chain.Stateful = (*globalMergeOp[int, int, int])(nil)
	_ chain.Advancer = (*globalMergeOp[int, int, int])(nil)
	_ chain.Flusher  = (*globalMergeOp[int, int, int])(nil)
)
