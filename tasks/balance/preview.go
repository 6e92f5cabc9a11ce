//go:build !nokeyed

package balance

import (
	"fmt"

	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/status"
)

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
