//go:build !nokeyed

package handover

import (
	"context"
	"errors"

	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
)

// This file has what Drive does about routing tables. A request for one takes several plans. Each of them has the number of
// the request, so that another process, which finds it in the newest plan, continues.

// refused is why a request cannot be carried out, by no later attempt either.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// began reports whether the newest plan is a step of a request.
func (c *controller) began(r *routing.Reroute) bool {
	return r.Number != 0 && c.control.Plan.Request == r.Number
}

// reroute carries out the requests that have no outcome, in their order; with started, only the one that the newest plan is a step
// of: another plan above that would end it.
func (d *drive) reroute(ctx context.Context, j rescale.Tasks, tables []routing.Reroute, started bool) error {
	for i := range tables {
		r := &tables[i]
		if d.answered(i) || started && !d.c.began(r) {
			continue
		}
		steps, had := d.c.steps, d.c.control.Plan
		d.table = r
		err := d.c.replace(ctx, j, r)
		d.table = nil
		var why refused
		o := rescale.Outcome{Request: i, Result: rescale.Result{Stage: r.Stage, Strategy: "slots"}}
		switch {
		case errors.As(err, &why):
			o.Error = why.Error()
		case err != nil:
			return err
		}
		if s := d.c.h.stage(r.Stage); s >= 0 {
			now := &d.c.control.Plan.Stages[s]
			o.Result.From, o.Result.To, o.Result.KeyGroups = now.Tasks, now.Tasks, len(now.Owners)
			o.Result.GroupsMoved, o.Result.Steps = rescale.Moved(had.Stages[s].Owners, now.Owners), d.c.steps-steps
		}
		o.Result.SettledMS = d.since()
		d.rerouted = append(d.rerouted, o)
		d.c.ended = nil
	}
	return nil
}

// answered reports whether a request for a table has an outcome.
func (d *drive) answered(i int) bool {
	for _, o := range d.rerouted {
		if o.Request == i {
			return true
		}
	}
	return false
}
