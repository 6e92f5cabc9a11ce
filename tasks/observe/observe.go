// Package observe has the steps that the tasks of a job report to an observer: the start of an
// instance, snapshots, checkpoints, savepoints, transactions, trims. The times in a task's status,
// and the points at which tests kill a process (internal/crash/walk), are made of them; a program
// may log or count them (tasks.Options.Observer, docs/adr/0050).
package observe

// Step is a step that a job has reached.
type Step string

// Event says that a step was reached.
type Event struct {
	Step Step
	// Job is the id of the job. Stage and Task name its task that has reached the step, and
	// Instance is the number of the task's instance; Stage is empty if no single task has.
	Job, Stage string
	Task       int
	Instance   uint64
}

// Observer is called at each step, by the goroutine that has reached it, before anything else is
// done there. It must be fast and safe for concurrent use, and must not call the job.
type Observer func(Event)

// Reached calls an observer, if there is one.
func Reached(o Observer, e Event) {
	if o != nil {
		o(e)
	}
}
