//go:build !nokeyed

package routing

import (
	"context"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/records"
)

// Resume begins an instance whose predecessor made marker last, the newest one; nil: the task has made none.
func (t *Task) Resume(ctx context.Context, log sharedlog.Log, job string, last *envelope.Marker) error {
	position, adopted := sharedlog.First, uint32(0)
	if last != nil {
		position, adopted = last.Position, last.Adopted
	}
	newest, err := newestPlan(ctx, log, job)
	below := newest
	if err == nil && t.in != nil {
		below, err = planBelow(ctx, log, job, position, len(newest.Stages))
	}
	if err != nil {
		return err
	}
	if err := t.Begin(below, newest, adopted); err != nil {
		return err
	}
	if t.in != nil && adopted < newest.Epoch {
		t.reached(observe.RouteResumed)
	}
	return nil
}

// Enter begins a task that the newest plan adds to its stage. There is no other plan until it has made a marker.
func (t *Task) Enter(ctx context.Context, log sharedlog.Log, job string) error {
	newest, err := newestPlan(ctx, log, job)
	if err != nil {
		return err
	}
	if err := t.Begin(newest, newest, 0); err != nil {
		return err
	}
	if newest.Epoch > 0 {
		t.reached(observe.RouteEntered)
	}
	return nil
}

func newestPlan(ctx context.Context, log sharedlog.Log, job string) (*envelope.Plan, error) {
	tail, err := log.Tail(ctx)
	if err != nil {
		return nil, err
	}
	p, _, err := records.LastPlan(ctx, log, job, tail)
	if err == nil && p == nil {
		err = fmt.Errorf("the log has no plan of job %q", job)
	}
	return p, err
}

// planBelow returns the newest plan below a position. If the log keeps none, but one at the position, that says
// what was in force before it.
func planBelow(ctx context.Context, log sharedlog.Log, job string, position sharedlog.LSN, stages int) (*envelope.Plan, error) {
	p, _, err := records.LastPlan(ctx, log, job, position)
	if p != nil || err != nil && !errors.Is(err, sharedlog.ErrTrimmed) {
		return p, err
	}
	if p, _, err = records.LastPlan(ctx, log, job, position+1); p != nil {
		p = Before(p)
	} else if err == nil {
		// The first plan is above. Of its tables only the epoch counts: there is no change between them and what begins.
		p = &envelope.Plan{Number: 1, Stages: make([]envelope.PlanStage, stages)}
	}
	return p, err
}
