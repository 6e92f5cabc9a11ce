package meta

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/tasks"
)

// Reroute is a request to replace the routing table of what a stage reads (tasks.Reroute).
type Reroute struct {
	Stage string `json:"stage"`
	// Number distinguishes the job's requests, also those to move key groups; it rises.
	Number uint64 `json:"number"`
	// Table has the places that are wanted, and the number of the table that they were chosen for (routing.Encode): keys
	// are bytes, which JSON has no strings for.
	Table  []byte `json:"table"`
	Owners []int  `json:"owners,omitempty"`
	Have   []int  `json:"have,omitempty"`
	// Was is the table that they were chosen for: it has another number when another table of the job is
	// replaced, and is the same.
	Was []byte `json:"was,omitempty"`
	ID  string `json:"id,omitempty"`
}

// Rerouted is the outcome of a Reroute.
type Rerouted struct {
	tasks.Rescaled
	Number uint64 `json:"number"`
	// Epoch is the number of the routing table then.
	Epoch uint32 `json:"epoch,omitempty"`
	// Error is why it was refused, or cannot be completed.
	Error string `json:"error,omitempty"`
}

// String says what became of the request.
func (r *Rerouted) String() string {
	if r.Error != "" {
		return "the routing table stays: " + r.Error
	}
	return fmt.Sprintf("routing epoch %d, %d of %d key groups moved", r.Epoch, r.GroupsMoved, r.KeyGroups)
}

// Request returns what is asked for.
func (r *Reroute) Request() (tasks.Reroute, error) {
	q := tasks.Reroute{Stage: r.Stage, Owners: r.Owners, Have: r.Have, Number: r.Number}
	return q, q.Decode(r.Table, r.Was)
}

// HasRerouted reports whether a request has an outcome.
func (s *State) HasRerouted(r *Reroute) bool {
	return slices.ContainsFunc(s.Rerouted, func(d Rerouted) bool { return d.Stage == r.Stage && d.Number >= r.Number })
}

// NextNumber returns the number of a new request, which is above that of all requests before, whatever the clock of the process
// says: with a lower one it would have the outcome of another request. s is the job's state, which may be older than j.
func (j *Job) NextNumber(s *State, now int64) uint64 {
	n := max(uint64(max(now, 1)), j.Newest+1)
	for _, r := range j.Rescale {
		n = max(n, r.Number+1)
	}
	for _, r := range j.Reroute {
		n = max(n, r.Number+1)
	}
	for _, r := range s.Rescaled {
		n = max(n, r.Number+1)
	}
	for _, r := range s.Rerouted {
		n = max(n, r.Number+1)
	}
	j.Newest = n
	return n
}
