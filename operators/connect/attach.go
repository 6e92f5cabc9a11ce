package connect

import "tailrace.dev/tailrace/operators/exec"

// Attached is implemented by partitions of sources and by writers of sinks that need more of their
// task than the other methods pass to them, such as the log that the job runs on. A wrapper
// passes the call on.
type Attached interface {
	// Attach is called once, right after Open. rt is the task's, and may be used by the goroutine
	// that calls the other methods.
	Attach(rt exec.Runtime) error
}
