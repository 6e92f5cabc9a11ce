package rescale

// Tasks is what the process that rescales a job needs of what runs the job's tasks.
type Tasks interface {
	// Enter starts a task that is new in its stage, unless an instance runs, which may be one that has
	// left and is about to end. Retire ends one that Enter has
	// started and that no plan names. givers are the owners of the key groups that the goal gives to
	// the task, one for each group.
	Enter(stage, task int, givers []int) (started bool, err error)
	Retire(stage, task int)
	// Restart stops all tasks, each with a commit, and starts them again.
	Restart() error
	// Runs reports whether a task runs: its instance has replaced its predecessors.
	Runs(stage, task int) bool
	// Changed receives a token when the answer of Runs may have changed; nil: it is asked repeatedly.
	Changed() <-chan struct{}
	// Done is closed when the job has ended.
	Done() <-chan struct{}
}
