//go:build !nokeyed

package balance

import (
	"errors"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/tasks/rescale"
)

var errNoPlanner = errors.New("dispatch own: there is no planner; set Planner in the program that runs the job in one process, or use least-count, weight or auto")

// planner returns what makes owners for a request. What a planner of the user's returns is checked: with an error, the owners
// stay, and failed is called.
func (r *Request) planner(failed func(error)) (route.Planner, error) {
	switch {
	case r.Dispatch != Own && r.Planner != nil:
		return nil, fmt.Errorf("dispatch %q: a planner is given, which is for dispatch %s", r.Dispatch, Own)
	case r.Dispatch != Own:
		return route.ByName(r.Dispatch)
	case r.Planner == nil:
		return nil, errNoPlanner
	}
	return func(s *route.Stage) []int {
		owners, err := r.own(s)
		if err != nil {
			failed(err)
			return slices.Clone(s.Owners)
		}
		return owners
	}, nil
}

// own asks a planner of the user's.
func (r *Request) own(s *route.Stage) (owners []int, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the planner of stage %s panicked: %v", r.Stage, p)
		}
	}()
	l := &Load{Owners: slices.Clone(s.Owners), Slots: s.Slots, Tasks: s.Tasks, Items: slices.Clone(s.Items), Keys: slices.Clone(s.Keys), Shares: slices.Clone(s.Shares)}
	if owners, err = r.Planner(l); err != nil {
		return nil, fmt.Errorf("the planner of stage %s: %w", r.Stage, err)
	}
	if err := rescale.Check(rescale.Stage{Name: r.Stage, Owners: s.Owners, Tasks: s.Tasks}, owners); err != nil {
		return nil, fmt.Errorf("the planner: %w", err)
	}
	return slices.Clone(owners), nil
}
