//go:build !nokeyed

package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/operators/route/epoch"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
)

// This file has what the process that appends plans does about routing tables. The steps, and when there may be one,
// are those of epoch.Control; key groups move by the goals of a rescale.

// adopting says which task has not adopted the routing tables of the newest plan, "": all have. There is no other plan
// before: it might move key groups of which a task would still have to move state (docs/adr/0081).
func (c *controller) adopting(ctx context.Context, tail sharedlog.LSN) (string, error) {
	p := c.control.Plan
	if routing.Settled(p) {
		return "", nil
	}
	for _, d := range routing.Domains(c.present) {
		for _, s := range d.Stages {
			for task := range p.Members(s) {
				name := p.Stages[s].Name
				m, _, err := records.LastMarker(ctx, c.log, c.present.Job, name, task, tail)
				if err != nil {
					return "", err
				}
				if m == nil || m.Adopted < p.Epoch && !m.Ended {
					c.h.cfg.Reached(observe.Event{Step: observe.RouteWaiting})
					return fmt.Sprintf("task %s/%d has not adopted routing epoch %d", name, task, p.Epoch), nil
				}
			}
		}
	}
	return "", nil
}

// Reroute implements runtime.Handover. If ctx ends, or if a step fails, what has been done so far remains: the tables and
// owners of each plan are consistent.
func (h *Handover) Reroute(ctx context.Context, j rescale.Tasks, r routing.Reroute) error {
	if _, _, err := h.domain(r.Stage); err != nil {
		return err
	}
	c, err := h.claim(ctx)
	if err != nil {
		return err
	}
	return c.replace(ctx, j, &r)
}

// domain returns the index of a stage, and of the domain among those of the job whose streams it reads.
func (h *Handover) domain(stage string) (s, i int, err error) {
	if s = h.stage(stage); s < 0 {
		return s, -1, h.Check(stage, 1)
	}
	i = slices.IndexFunc(routing.Domains(h.cfg.Layout), func(d routing.Domain) bool { return slices.Contains(d.Stages, s) })
	if i < 0 {
		err = fmt.Errorf("stage %s reads no stream with slots: a job has them if it is begun with some, in streams that go by the hash of a key", stage)
	}
	return s, i, err
}

// replace carries out a request. If the newest plan is a step of it, it continues.
func (c *controller) replace(ctx context.Context, j rescale.Tasks, r *routing.Reroute) error {
	s, i, err := c.h.domain(r.Stage)
	if err != nil {
		return refused{err}
	}
	all := routing.Domains(c.h.cfg.Layout)
	started := c.began(r)
	busy := slices.ContainsFunc(all[i].Stages, func(s int) bool { return c.core.Goal(s) != nil }) // with what an earlier process began
	present, err := all[i].Of(c.control.Plan)
	if err != nil {
		return err
	}
	if !started && r.Have != nil && (busy || r.Changed(present.Table) || !slices.Equal(c.control.Plan.Stages[s].Owners, r.Have)) {
		return refused{rescale.ErrChanged}
	}
	c.request = r.Number
	defer func() { c.request = 0 }()
	if busy {
		if _, err := c.run(ctx, j); err != nil {
			return err
		}
	}
	for tasks := 0; ; {
		if err := c.finishStep(ctx); err != nil {
			return err
		}
		present, err := all[i].Of(c.control.Plan)
		if err != nil {
			return err
		}
		if n := c.present.Stages[s].Tasks; tasks != 0 && n != tasks && r.Owners != nil {
			return refused{rescale.ErrChanged}
		} else if tasks = n; r.Owners != nil {
			if err := rescale.Check(rescale.Stage{Name: r.Stage, Owners: c.control.Plan.Stages[s].Owners, Tasks: n}, r.Owners); err != nil {
				return refused{err}
			}
			if err := c.present.Fits(s, r.Owners); err != nil { // before a step of it is made
				return refused{err}
			}
		}
		d, err := decide(present, r, slices.Index(all[i].Stages, s))
		switch {
		case err != nil:
			return refused{err}
		case d.Done:
			c.h.cfg.Reached(observe.Event{Step: observe.RouteReached})
			return nil
		case d.Plan == nil:
			return refused{errors.New(d.Waits)} // there is nothing to wait for
		case d.Kind == epoch.Route:
			err = c.reroute(ctx, all, &all[i], d.Plan.Table)
		default:
			err = c.moveTo(ctx, j, all[i].Stages, d.Plan.Owners)
		}
		if err != nil {
			return err
		}
	}
}

// Table implements runtime.Handover.
func (h *Handover) Table(stage int) (*routing.Table, error) {
	newest := h.newest.Load()
	if newest == nil {
		newest = h.cfg.Plan
	}
	if newest == nil { // the job is not in the log
		newest = &envelope.Plan{Stages: make([]envelope.PlanStage, len(h.cfg.Layout.Stages))}
	}
	return routing.TableOf(h.cfg.Layout, stage, newest)
}

// decide returns the next step to what is wanted of a domain, of which r.Stage is the stage-th one.
func decide(present *epoch.Plan, r *routing.Reroute, stage int) (epoch.Decision, error) {
	want := &epoch.Want{Places: r.Places, Owners: slices.Clone(present.Owners)}
	if r.Owners != nil {
		want.Owners[stage] = r.Owners
	}
	c := epoch.NewControl(present)
	if err := c.Ask(want); err != nil {
		return epoch.Decision{}, err
	}
	return c.Next(&epoch.Facts{}), nil
}

// reroute appends the plan of the next epoch.
func (c *controller) reroute(ctx context.Context, all []routing.Domain, d *routing.Domain, table *route.Table) (err error) {
	p := c.nextPlan()
	p.Epoch++
	if p.Routes, err = routing.Replaced(c.control.Plan, all, d, table); err != nil {
		return err
	}
	c.h.cfg.Reached(observe.Event{Step: observe.RoutePlanning})
	if err := c.write(ctx, p, nil); err != nil {
		return err
	}
	c.h.cfg.Reached(observe.Event{Step: observe.RoutePlanned})
	c.rebase()
	return nil
}

// moveTo moves key groups of some stages until they have these owners.
func (c *controller) moveTo(ctx context.Context, j rescale.Tasks, stages []int, owners [][]int) error {
	c.h.cfg.Reached(observe.Event{Step: observe.RouteMoving})
	for i, s := range stages {
		if err := c.present.Fits(s, owners[i]); err != nil {
			return refused{err}
		}
		if have := &c.control.Plan.Stages[s]; !slices.Equal(have.Owners, owners[i]) {
			c.core.Ask(s, rescale.Goal{Tasks: have.Tasks, Owners: owners[i], Strategy: "slots"})
		}
	}
	_, err := c.run(ctx, j)
	if err == nil && slices.ContainsFunc(stages, func(s int) bool { return slices.Contains(c.ended, s) }) { // others may have ended, too
		err = refused{rescale.ErrStageEnded}
	}
	return err
}

// rebase makes the core continue from the newest plan, which is not one of its decisions.
func (c *controller) rebase() {
	plans, goals := make([]rescale.Plan, len(c.present.Stages)), make([]*rescale.Goal, len(c.present.Stages))
	for s := range plans {
		plans[s], goals[s] = planOf(c.control.Plan, c.control.At, s, c.h.source(s)), c.core.Goal(s)
	}
	c.core.Appended(plans, goals)
}

// learn tells the task of a plan, which may be above its position. If it has another table, the task sends by it from
// a commit on that it makes at once.
func (m *mover) learn(ctx context.Context, p *envelope.Plan) error {
	r := m.e.Routes()
	if r == nil {
		return nil
	}
	if err := r.Learn(p); err != nil || !r.Due() {
		return err
	}
	return m.e.Commit(ctx)
}

// reroute handles the table of a plan that the task's input has reached, before anything else that the plan is about: with
// another table it moves no key groups.
func (m *mover) reroute(ctx context.Context, p *envelope.Plan) error {
	r := m.e.Routes()
	if r == nil {
		return nil
	}
	owned, _ := m.e.Owned()
	commit, err := r.Reached(p, owned)
	if err != nil || !commit && !r.Due() {
		return err
	}
	return m.e.Commit(ctx)
}

// enterRoutes begins the routing of a task that is new in its stage.
func (m *mover) enterRoutes(ctx context.Context) error {
	if r := m.e.Routes(); r != nil {
		return r.Enter(ctx, m.config().Log, m.config().Layout.Job)
	}
	return nil
}
