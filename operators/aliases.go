package operators

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/state"
)

// The part of packages exec and state that programs use which define jobs, sources and sinks.
type (
	// Plan is a job cut at its repartitions into stages, which a runtime runs.
	Plan = exec.Plan
	// Runtime is what a task provides for its operators, sources and sinks.
	Runtime = exec.Runtime
	// Fence keeps the instances of a task apart where the log cannot.
	Fence = exec.Fence
	// Elem is a value of a List.
	Elem[V any] = state.Elem[V]
)

// Watermark values at the two ends of time, in ms since 1970-01-01 UTC.
const (
	// MinTime is the watermark of a producer that has promised nothing yet.
	MinTime = exec.MinTime
	// MaxTime is the watermark at the end of input: no further items come.
	MaxTime = exec.MaxTime
)
