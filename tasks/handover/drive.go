package handover

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/runtime"
)

// Drive implements runtime.Handover.
func (h *Handover) Drive(ctx, life context.Context, j rescale.Tasks, asked []rescale.Request, tables []routing.Reroute, tell func(*rescale.Progress)) error {
	c, err := h.claim(ctx)
	if err != nil {
		return err
	}
	d := &drive{c: c, began: h.cfg.Clock(), tell: tell}
	c.life, c.saw = life, d.saw
	if err := d.reroute(ctx, j, tables, true); err != nil {
		return err
	}
	for i := range asked {
		d.ask(i, &asked[i])
	}
	d.resumed()
	if len(d.moves) > 0 {
		if _, err = c.run(ctx, j); err != nil {
			return err
		}
	}
	if err := d.reroute(ctx, j, tables, false); err != nil {
		return err
	}
	d.saw(&rescale.Decision{Settled: true})
	return nil
}

// Check returns why a request of a job on workers cannot be carried out, as far as the job's settings
// say.
func Check(cfg *runtime.Config, r rescale.Request) error {
	h := &Handover{cfg: cfg}
	s, err := h.of(&r)
	if err == nil {
		var mode *rescale.Mode
		if mode, err = rescale.ModeOf(r.Mode); err == nil && mode.Restarts {
			err = rescale.ErrRestart
		}
	}
	if err == nil && !r.Cancel {
		_, _, err = owners(r, &envelope.PlanStage{Owners: cfg.Layout.Stages[s].Owner})
	}
	return err
}

// drive carries out requests, and says how far they are.
type drive struct {
	c     *controller
	began time.Time
	tell  func(*rescale.Progress)
	moves []moving
	done  []rescale.Outcome
	// table is the request for a routing table that is carried out, nil: none is; rerouted are the outcomes.
	table    *routing.Reroute
	rerouted []rescale.Outcome
	told     *rescale.Progress
}

// moving is one stage with a goal.
type moving struct {
	stage   int
	request int // -1: the goal is that of an earlier process
	result  rescale.Result
	goal    []int // the owners; nil: the request cancels the goal
}

// ask makes a request the goal of its stage, or refuses it.
func (d *drive) ask(i int, r *rescale.Request) {
	s, err := d.c.h.of(r)
	var result *rescale.Result
	if err == nil {
		result, err = d.c.ask(s, r)
	}
	if err != nil {
		d.done = append(d.done, rescale.Outcome{Request: i, Error: err.Error()})
		return
	}
	m := moving{stage: s, request: i, result: *result}
	if g := d.c.core.Goal(s); g != nil {
		m.goal = g.Owners
	}
	d.moves = append(d.moves, m)
}

// resumed adds the goals that the newest plan has.
func (d *drive) resumed() {
	for s := range d.c.present.Stages {
		g := d.c.core.Goal(s)
		if g == nil || slices.ContainsFunc(d.moves, func(m moving) bool { return m.stage == s }) {
			continue
		}
		have := &d.c.control.Plan.Stages[s]
		d.moves = append(d.moves, moving{stage: s, request: -1, goal: g.Owners, result: rescale.Result{
			Stage: have.Name, From: have.Tasks, To: g.Tasks, GroupsMoved: rescale.Moved(have.Owners, g.Owners), KeyGroups: len(have.Owners),
		}})
	}
}

// since returns the time in ms for which it has run.
func (d *drive) since() float64 {
	return float64(d.c.h.cfg.Clock().Sub(d.began)) / float64(time.Millisecond)
}

// saw handles a decision: it tells the progress if there is any.
func (d *drive) saw(now *rescale.Decision) {
	d.moves = slices.DeleteFunc(d.moves, func(m moving) bool {
		o := rescale.Outcome{Request: m.request, Result: m.result}
		switch {
		case slices.Contains(d.c.ended, m.stage):
			o.Error = rescale.ErrStageEnded.Error()
		case !now.Settled || !d.c.core.Reached(m.stage):
			return false
		}
		o.Result.Steps = d.c.steps
		o.Result.To = d.c.present.Stages[m.stage].Tasks
		o.Result.SettledMS = d.since()
		if m.request >= 0 {
			d.done = append(d.done, o)
		}
		return true
	})
	p := &rescale.Progress{Waits: now.Waits, Done: slices.Clone(d.done), Rerouted: slices.Clone(d.rerouted)}
	if d.table != nil {
		p.Table = d.table.Stage
	}
	plan := d.c.control.Plan
	p.Epoch = plan.Epoch
	for s := range plan.Stages {
		p.Tasks, p.Members = append(p.Tasks, plan.Stages[s].Tasks), append(p.Members, plan.Members(s))
		if now.Settled { // they have left
			p.Members[s] = p.Tasks[s]
		}
		p.Goal = p.Goal || !d.c.core.Reached(s)
	}
	for _, m := range d.moves {
		at := rescale.StageProgress{Stage: m.result.Stage, From: m.result.From, To: m.result.To, Groups: m.result.GroupsMoved, Cancel: m.goal == nil}
		if m.goal != nil {
			at.Moved = at.Groups - rescale.Moved(plan.Stages[m.stage].Owners, m.goal)
		}
		p.Stages = append(p.Stages, at)
	}
	if d.told == nil || !reflect.DeepEqual(d.told, p) {
		d.told = p
		d.tell(p)
	}
}

// FinishStep implements runtime.Handover. No other process can append a plan from then on, unless it
// claims to.
func (h *Handover) FinishStep(ctx context.Context, tell func(*rescale.Progress)) error {
	c, err := h.claim(ctx)
	if err != nil {
		return err
	}
	c.saw = (&drive{c: c, began: h.cfg.Clock(), tell: tell}).saw
	return c.finishStep(ctx)
}

// Switch implements runtime.Handover. A step of a rescale ends before it: what moves is in the newest plan. Goals
// that are not reached remain. If the newest plan has the grain already, because a process asks once more that does not know what became of
// its request, no other one is made.
func (h *Handover) Switch(ctx, life context.Context, r runtime.Switch) error {
	s := h.stage(r.Stage)
	if s < 0 {
		return h.Check(r.Stage, 1)
	}
	spec := &h.cfg.Layout.Plan.Stages[s]
	switch {
	case !spec.Switches():
		return fmt.Errorf("the keys of stage %s have the clocks that its author chose: give its stream WatermarkPer(Auto, delay)", r.Stage)
	case r.Grain.PerKey && r.Grain.Delay < spec.Grain.Delay:
		return fmt.Errorf("the delay of the clocks of stage %s is %d ms at least, as its author says; not %d ms", r.Stage, spec.Grain.Delay, r.Grain.Delay)
	}
	c, err := h.claim(ctx)
	if err != nil {
		return err
	}
	if g := c.control.Plan.Stages[s].Grain; g != nil && *g == r.Grain {
		return nil
	}
	c.life = life
	if err := c.finishStep(ctx); err != nil {
		return err
	}
	p := c.nextPlan()
	p.Stages[s].Grain = &r.Grain
	return c.write(ctx, p, nil)
}

// finishStep waits until no key group is on its way, without a next step.
func (c *controller) finishStep(ctx context.Context) (err error) {
	var marks sharedlog.Reader // tells when there is something new
	defer func() {
		if marks != nil {
			err = errors.Join(err, marks.Close())
		}
	}()
	for {
		d, err := c.next(ctx, nil)
		if err == nil && c.saw != nil {
			c.saw(&d)
		}
		switch {
		case errors.Is(err, sharedlog.ErrTrimmed):
			continue // since the tail was read: there are newer markers
		case err != nil || d.Settled:
			return err
		case marks == nil: // look again: there may be a marker below its start
			marks, err = c.markers()
		default:
			_, err = marks.Next(ctx)
		}
		if errors.Is(err, sharedlog.ErrTrimmed) {
			err, marks = marks.Close(), nil
		}
		if err != nil {
			return err
		}
	}
}
