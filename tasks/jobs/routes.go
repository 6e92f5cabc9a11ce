package jobs

import (
	"context"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/meta"
)

// Slots are the slots of what a Stage reads, and what is in them.
type Slots struct {
	// Slots is their number, fixed for the job.
	Slots int `json:"slots"`
	// Table is the newest routing table; nil: it was not read (Routes).
	Table *Table `json:"table"`
	// Newest is the outcome of the newest request for a table that has one; nil: there was none.
	Newest *meta.Rerouted `json:"newest,omitempty"`
	// UnderWay: a request for another table has no outcome yet.
	UnderWay bool `json:"under_way"`
}

// Table is a routing table.
type Table struct {
	// Epoch is the number of the table, 0: that of a new job.
	Epoch uint32 `json:"epoch"`
	// Used is the number of slots that have something in them: of Places.
	Used int `json:"used"`
	// Places are by slot.
	Places []Place `json:"places"`
}

// Place is what a Table routes to a slot: a key, or some sixteenths of a hash group.
type Place struct {
	// Part is a text for people.
	Part string `json:"part"`
	// Key is the key in the encoding of the stream. Otherwise the place is of Sixteenths of the key group, from First on.
	Key        []byte `json:"key,omitempty"`
	First      int    `json:"first_sixteenth,omitempty"`
	Sixteenths int    `json:"sixteenths,omitempty"`
	// Group is the hash group that has the keys without the place.
	Group int `json:"key_group"`
	Slot  int `json:"slot"`
	// Task is the owner of the slot.
	Task int `json:"task"`
}

// Routes reads the routing tables of a job from the log. Of a job that has no slots, or has not run yet, it reads nothing.
func (o *Overview) Routes(ctx context.Context, log sharedlog.Log, job string) error {
	spec, id := o.View.Jobs[job].Spec, o.View.States[job].ID
	if spec == nil || spec.Slots == 0 || id == "" {
		return nil
	}
	r, err := spec.Routed(ctx, log, id)
	if err != nil {
		return fmt.Errorf("job %s: its routing tables: %w", job, err)
	}
	o.routed = map[string]*tasks.Routed{job: r}
	return nil
}

// slots returns the slots of what a stage of a job reads, nil: there are none. One table is for all stages that read streams of a
// domain, and so are requests.
func (o *Overview) slots(name string, stage int) *Slots {
	job, st := o.View.Jobs[name], o.View.States[name]
	domain := func(stage int) int {
		for _, in := range job.Spec.Plan.Stages[stage].Inputs {
			if job.Spec.Plan.Streams[in].Slots > 0 {
				return job.Spec.Plan.Domains()[in]
			}
		}
		return -1
	}
	mine := domain(stage)
	if mine < 0 {
		return nil
	}
	s := &Slots{Slots: job.Spec.Plan.Streams[mine].Slots}
	for i := range job.Spec.Plan.Stages {
		if domain(i) != mine {
			continue
		}
		of := job.Spec.Plan.Stages[i].Name
		s.UnderWay = s.UnderWay || slices.ContainsFunc(job.Reroute, func(r meta.Reroute) bool { return r.Stage == of && !st.HasRerouted(&r) })
		for _, r := range st.Rerouted {
			if r.Stage == of && (s.Newest == nil || s.Newest.Number < r.Number) {
				s.Newest = &r
			}
		}
	}
	if r := o.routed[name]; r != nil {
		s.Table = newTable(r.Tables[stage], r.Stages[stage].Owner)
	}
	return s
}
