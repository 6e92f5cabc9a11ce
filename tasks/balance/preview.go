//go:build !nokeyed

package balance

import (
	"errors"
	"fmt"

	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/status"
)

// Look returns what a Balancer would make of what came for the stage with an index between two readings of
// the job's tasks. table is the newest one of what the stage reads, nil: it has no slots; then the second reading has samples of
// what came since the first one. Check must have accepted the request.
func Look(r Request, l *layout.Layout, index int, table *routing.Table, from, to []status.Snapshot) (*Preview, error) {
	var failed error
	plan, err := r.planner(func(err error) { failed = err })
	if err != nil {
		return nil, err
	}
	st := &l.Stages[index]
	s := route.Sample{Owners: st.Owner, Slots: st.Slots, Tasks: st.Tasks, Items: make([]int64, st.Groups)}
	var m meter
	for _, all := range [][]status.Snapshot{from, to} {
		m.sample(inputs(l, index), all, &s)
	}
	if len(r.Shares) == st.Tasks {
		s.Shares = r.Shares
	} else if r.Shares != nil {
		return nil, fmt.Errorf("stage %q has %d tasks, and there are %d task weights", r.Stage, st.Tasks, len(r.Shares))
	}
	s.Keys, s.Bytes = state(r.Stage, s.Owners, to)
	load, of := s.Items, ofItems
	if r.byKeys() {
		if load, of = s.Keys, ofKeys; load == nil {
			return nil, errors.New("dispatch least-key: the keys of some key groups were not counted; try again when each task has made a commit")
		}
	}
	p := &Preview{Stage: r.Stage, Dispatch: r.Dispatch, Of: of, Tasks: st.Tasks, KeyGroups: st.Groups, Moves: []Move{}}
	if table != nil {
		p.Slots, p.SlotsUsed, p.Epoch = table.Slots, len(table.Places()), table.Epoch
		if !r.whole() {
			s.Table, s.Fine = table, sampled(inputs(l, index), to)
		}
	}
	next := route.NewPlan(plan, &s, load)
	if failed != nil {
		return nil, failed
	}
	p.Items, p.Planned = route.Tasks(load, st.Owner, st.Tasks), next.ByTask
	p.Degree, p.Extra = route.Degree(p.Items, s.Shares), route.Extra(p.Items, s.Shares)
	p.PlannedDegree, p.PlannedExtra = route.Degree(p.Planned, s.Shares), route.Extra(p.Planned, s.Shares)
	filled := p.places(&s, next)
	for g, owner := range next.Owners {
		if owner != st.Owner[g] && !filled[g] {
			p.Moves = append(p.Moves, Move{g, st.Owner[g], owner, next.Load[g]})
		}
	}
	return p, nil
}

// places sets what another table would change, and returns the slots that it would fill: they move empty.
func (p *Preview) places(s *route.Sample, next *route.Plan) map[int]bool {
	filled := map[int]bool{}
	if next.Places == nil {
		return filled
	}
	add := func(all *[]Placed, part route.Part, slot, from, to int, items int64) {
		q := Placed{Part: part.String(), Group: part.Home(s.Table.Groups), Slot: slot, From: from, To: to, Items: items}
		if part.Single {
			q.Key = []byte(part.Key)
		}
		*all = append(*all, q)
	}
	back, placed := s.Table.Towards(next.Places)
	for _, slot := range back {
		part, _ := s.Table.At(slot)
		add(&p.Back, part, slot, s.Owners[slot], next.Owners[part.Home(s.Table.Groups)], s.Items[slot])
	}
	for _, q := range placed {
		filled[q.Slot] = true
		add(&p.Placed, q.Part, q.Slot, s.Owners[q.Home(s.Table.Groups)], next.Owners[q.Slot], next.Load[q.Slot])
	}
	return filled
}

// inputs returns the names of the streams that a stage reads.
func inputs(l *layout.Layout, index int) (names []string) {
	for _, i := range l.Plan.Stages[index].Inputs {
		names = append(names, l.Plan.Streams[i].Name)
	}
	return names
}
