package autoscale

import "tailrace.dev/tailrace/tasks/status"

// Reading is what a worker tells of a task that runs there.
type Reading struct {
	// Job is the job's name, ID its id in the log.
	Job string `json:"job"`
	ID  string `json:"id"`
	// Status is the task's; Load and Keys are its Load and Keys, and Sent has ByGroup of each of its Sent, which the JSON of
	// a status leaves out.
	Status status.Snapshot `json:"status"`
	Load   []uint64        `json:"load"`
	Keys   []int64         `json:"keys,omitempty"`
	Sent   [][]uint64      `json:"sent,omitempty"`
	// Samples has what was sampled of each of Status.Sent, nil: nothing was. They are told if they are asked for.
	Samples []*status.Sampler `json:"samples,omitempty"`
	// Measured is that of Status. It is told if it is asked for.
	Measured *status.Measured `json:"measured,omitempty"`
}

// NewReading returns the reading of a task of a job.
func NewReading(job, id string, s status.Snapshot) Reading {
	r := Reading{Job: job, ID: id, Status: s, Load: s.Load, Keys: s.Keys}
	for i := range s.Sent {
		r.Sent = append(r.Sent, s.Sent[i].ByGroup)
	}
	return r
}

// NewSampled is NewReading with samples of keys.
func NewSampled(job, id string, s status.Snapshot) Reading {
	r := NewReading(job, id, s)
	for i := range s.Sent {
		r.Samples = append(r.Samples, s.Sent[i].Keys)
	}
	return r
}

// NewMeasured returns how far the items of a task of a job were out of order, in at most 8 KiB of JSON, and nothing else that
// it measures; Measured is nil if the grain of its stage is not chosen.
func NewMeasured(job, id string, s status.Snapshot) Reading {
	return Reading{Job: job, ID: id, Status: status.Snapshot{Stage: s.Stage, Task: s.Task, Instance: s.Instance}, Measured: s.Measured}
}

// Snapshot returns the status with what its JSON leaves out.
func (r *Reading) Snapshot() status.Snapshot {
	s := r.Status
	s.Load, s.Keys, s.Measured = r.Load, r.Keys, r.Measured
	for i := range min(len(s.Sent), len(r.Sent)) {
		s.Sent[i].ByGroup = r.Sent[i]
	}
	for i := range min(len(s.Sent), len(r.Samples)) {
		s.Sent[i].Keys = r.Samples[i]
	}
	return s
}
