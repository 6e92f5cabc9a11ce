package rescale

import (
	"fmt"
	"strings"
)

// Progress says how far the rescales of a job are, as the process that appends plans knows it.
type Progress struct {
	// Tasks is the number of tasks of each stage as of the newest plan; Members counts those that
	// leave by that plan, too, while its step is not done.
	Tasks, Members []int
	// Goal: a stage has not reached its goal.
	Goal bool
	// Stages are the stages whose rescale is not complete.
	Stages []StageProgress
	// Waits says what the next plan, or the end of the present step, waits for.
	Waits string
	// Done are the requests that have an outcome, Rerouted those for routing tables.
	Done, Rerouted []Outcome
	// Table is the stage whose routing table is being replaced; "": none is. Epoch is the number of the newest one.
	Table string
	Epoch uint32
}

// StageProgress is the part of a Progress that concerns one stage.
type StageProgress struct {
	Stage string
	// From is the number of tasks at the start, To the wanted one.
	From, To int
	// Of the Groups key groups that have to move, plans have moved Moved.
	Moved, Groups int
	// Cancel: no further key groups are to move.
	Cancel bool
}

// Outcome is how a request has ended.
type Outcome struct {
	// Request is the index of the request.
	Request int
	// Result is what was done; if the request was refused, Error says why.
	Result Result
	Error  string
}

// String describes a Progress in one sentence; "" if nothing is under way.
func (p *Progress) String() string {
	var all []string
	if p.Table != "" {
		all = append(all, "replacing the routing table of "+p.Table)
	}
	if len(p.Stages) == 0 && len(all) == 0 {
		return ""
	}
	for _, s := range p.Stages {
		if s.Cancel {
			all = append(all, fmt.Sprintf("giving up the rescale of %s", s.Stage))
			continue
		}
		all = append(all, fmt.Sprintf("rescaling %s %d → %d: %d of %d key groups moved", s.Stage, s.From, s.To, s.Moved, s.Groups))
	}
	text := strings.Join(all, ", ")
	if p.Waits != "" {
		text += "; " + p.Waits
	}
	return text
}
