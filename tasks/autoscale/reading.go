package autoscale

import "tailrace.dev/tailrace/tasks/status"

// Reading is what a worker tells of a task that runs there.
type Reading struct {
	// Job is the job's name, ID its id in the log.
	Job string `json:"job"`
	ID  string `json:"id"`
	// Status is the task's; Load is its Load, which the JSON of a status leaves out.
	Status status.Snapshot `json:"status"`
	Load   []uint64        `json:"load"`
}

// Snapshot returns the status with its load.
func (r *Reading) Snapshot() status.Snapshot {
	s := r.Status
	s.Load = r.Load
	return s
}
