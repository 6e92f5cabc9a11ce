package balance

import (
	"fmt"

	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/status"
)

// Preview is what a Balancer would make of the load of a stage.
type Preview struct {
	Stage     string `json:"stage"`
	Dispatch  string `json:"planner"`
	Tasks     int    `json:"tasks"`
	KeyGroups int    `json:"key_groups"`
	// Items is the number of items that came for the key groups of each task, Planned what it would have
	// been with the planned owners.
	Items   []int64 `json:"items_by_task"`
	Planned []int64 `json:"planned_by_task"`
	// Degree and Extra are those of Items, PlannedDegree and PlannedExtra those of Planned.
	Degree        float64 `json:"degree"`
	Extra         float64 `json:"extra"`
	PlannedDegree float64 `json:"planned_degree"`
	PlannedExtra  float64 `json:"planned_extra"`
	// Moves are the key groups that would move, ascending.
	Moves []Move `json:"moves"`
	// Seconds is the time between the readings, which the caller sets.
	Seconds float64 `json:"seconds"`
}

// Move is one key group that would go from one task to another.
type Move struct {
	Group int   `json:"key_group"`
	From  int   `json:"from"`
	To    int   `json:"to"`
	Items int64 `json:"items"`
}

// Look returns what a Balancer would make of what came for the stage with an index between two readings of
// the job's tasks. Check must have accepted the request.
func Look(r Request, l *layout.Layout, index int, from, to []status.Snapshot) (*Preview, error) {
	plan, err := route.ByName(r.Dispatch)
	if err != nil {
		return nil, err
	}
	st := &l.Stages[index]
	s := route.Sample{Tasks: st.Tasks, Items: make([]int64, st.Groups)}
	var m meter
	for _, all := range [][]status.Snapshot{from, to} {
		m.sample(inputs(l, index), all, &s)
	}
	stage := &route.Stage{Owners: st.Owner, Slots: st.Slots, Tasks: st.Tasks, Items: s.Items}
	if len(r.Shares) == st.Tasks {
		stage.Shares = r.Shares
	} else if r.Shares != nil {
		return nil, fmt.Errorf("stage %q has %d tasks, and there are %d task weights", r.Stage, st.Tasks, len(r.Shares))
	}
	owners := plan(stage)
	p := &Preview{
		Stage: r.Stage, Dispatch: r.Dispatch, Tasks: st.Tasks, KeyGroups: st.Groups,
		Items: route.Tasks(s.Items, st.Owner, st.Tasks), Planned: route.Tasks(s.Items, owners, st.Tasks), Moves: []Move{},
	}
	p.Degree, p.Extra = route.Degree(p.Items, stage.Shares), route.Extra(p.Items, stage.Shares)
	p.PlannedDegree, p.PlannedExtra = route.Degree(p.Planned, stage.Shares), route.Extra(p.Planned, stage.Shares)
	for g, owner := range owners {
		if owner != st.Owner[g] {
			p.Moves = append(p.Moves, Move{g, st.Owner[g], owner, s.Items[g]})
		}
	}
	return p, nil
}

// inputs returns the names of the streams that a stage reads.
func inputs(l *layout.Layout, index int) (names []string) {
	for _, i := range l.Plan.Stages[index].Inputs {
		names = append(names, l.Plan.Streams[i].Name)
	}
	return names
}
