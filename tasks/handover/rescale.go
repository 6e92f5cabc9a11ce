package handover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/control"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/tags"
)

// lookEvery is how often the process that appends plans looks whether newcomers run.
const lookEvery = 2 * time.Millisecond

// Rescale implements runtime.Handover.
func (h *Handover) Rescale(ctx context.Context, j rescale.Tasks, r rescale.Request) (*rescale.Result, error) {
	began := h.cfg.Clock()
	s, err := h.of(&r)
	if err != nil {
		return nil, err
	}
	mode, err := rescale.ModeOf(r.Mode)
	if err != nil {
		return nil, err
	}
	c, err := h.claim(ctx)
	if err != nil {
		return nil, err
	}
	done, err := c.ask(s, &r)
	if err != nil {
		return nil, err
	}
	if mode.Restarts {
		h.restarts.Store(max(c.control.Plan.Number, 1) + 1)
		defer h.resume()
	}
	done.Steps, err = c.run(ctx, j)
	if err == nil && mode.Restarts && len(c.ended) == 0 {
		err = j.Restart()
	}
	if err == nil && slices.Contains(c.ended, s) {
		err = rescale.ErrStageEnded
	}
	done.SettledMS = float64(h.cfg.Clock().Sub(began)) / float64(time.Millisecond)
	return done, err
}

// stage returns the index of the stage with a name, -1: there is none.
func (h *Handover) stage(name string) int {
	return slices.IndexFunc(h.cfg.Layout.Plan.Stages, func(s exec.StageSpec) bool { return s.Name == name })
}

// source reports whether a stage reads a source.
func (h *Handover) source(s int) bool { return h.cfg.Layout.Plan.Stages[s].Partitions > 0 }

// Check implements runtime.Handover.
func (h *Handover) Check(stage string, tasks int) error {
	s := h.stage(stage)
	if s < 0 {
		var names []string
		for _, st := range h.cfg.Layout.Plan.Stages {
			names = append(names, st.Name)
		}
		return fmt.Errorf("the job has no stage %q; it has %v", stage, names)
	}
	return h.refuse(s, tasks)
}

// of returns the stage of a request, or why it cannot be rescaled so.
func (h *Handover) of(r *rescale.Request) (int, error) {
	s, n := h.stage(r.Stage), r.Tasks
	if r.Cancel && s >= 0 {
		n = h.cfg.Present().Stages[s].Tasks
	}
	if err := h.Check(r.Stage, n); err != nil {
		return s, err
	}
	if mode, err := rescale.ModeOf(r.Mode); err == nil && mode.Restarts && h.source(s) {
		return s, fmt.Errorf("stage %s cannot be rescaled: %w", r.Stage, rescale.ErrSourceRestart)
	}
	return s, nil
}

// ask makes a request the goal of its stage. It returns what the result will be, if the goal is
// reached.
func (c *controller) ask(s int, r *rescale.Request) (*rescale.Result, error) {
	have := &c.control.Plan.Stages[s]
	done := &rescale.Result{Stage: r.Stage, From: have.Tasks, To: have.Tasks, KeyGroups: len(have.Owners)}
	if r.Cancel {
		c.core.Cancel(s)
		return done, nil
	}
	if r.Have != nil && (r.Tasks != have.Tasks || c.core.Goal(s) != nil || !slices.Equal(r.Have, have.Owners)) {
		return nil, rescale.ErrChanged
	}
	mode, err := rescale.ModeOf(r.Mode)
	if err != nil {
		return nil, err
	}
	goal, strategy, err := owners(*r, have)
	if err != nil {
		return nil, err
	}
	if err := c.present.Fits(s, goal); err != nil {
		return nil, err
	}
	batch := mode.Step(r.Batch)
	done.To, done.Strategy, done.Batch, done.Mode, done.GroupsMoved = r.Tasks, strategy, batch, mode.Name, rescale.Moved(have.Owners, goal)
	c.core.Ask(s, rescale.Goal{Tasks: r.Tasks, Owners: goal, Strategy: strategy, ID: r.ID, Batch: batch, Mode: mode.Name, Late: r.Late || mode.Restarts})
	return done, nil
}

// refuse returns why a stage cannot have that many tasks.
func (h *Handover) refuse(s, n int) error {
	l, can := h.cfg.Present(), h.cfg.Protocol.Capabilities()
	spec := &l.Plan.Stages[s]
	err := rescale.Refuse(rescale.Subject{
		Stage: spec.Name, Sink: spec.Sink, Source: len(spec.Inputs) == 0, Groups: l.Stages[s].Groups, Tasks: l.Stages[s].Tasks, Most: l.Most(s),
		Protocol: h.cfg.Protocol.Name(), Log: can.KeepsChanges, Coordinated: can.Coordinator,
	}, n)
	if err == nil {
		err = l.CheckTasks(s, n)
	}
	return err
}

// owners returns the owners that a request asks for, and the name of the strategy.
func owners(r rescale.Request, have *envelope.PlanStage) (goal []int, strategy string, err error) {
	stage := rescale.Stage{Name: r.Stage, Owners: have.Owners, Tasks: r.Tasks}
	strategy = r.Strategy
	var assign rescale.Assign
	switch {
	case r.Owners != nil:
		assign, strategy = rescale.Explicit(r.Owners), cmp.Or(strategy, "owners")
	case strategy == "":
		assign, strategy = rescale.Sticky, "sticky"
	default:
		if assign, err = rescale.Strategy(strategy); err != nil {
			return nil, "", err
		}
	}
	goal = assign(stage)
	return goal, strategy, rescale.Check(stage, goal)
}

// controller is the part of the process that appends plans.
type controller struct {
	h       *Handover
	control *control.Control
	core    *rescale.Control
	log     sharedlog.Log
	present *layout.Layout // as of the newest plan
	request uint64         // that its plans are steps of, 0: of none
	steps   int
	ended   []int    // stages whose goals were given up
	entered [][2]int // stages and tasks that were started because a plan was to name them
	// life ends the wait for the outcome of an append; nil: nothing does. saw is told each decision.
	life context.Context
	saw  func(*rescale.Decision)
}

// claim makes this process the one that appends the job's plans.
func (h *Handover) claim(ctx context.Context) (*controller, error) {
	l := h.cfg.Layout
	n, err := control.Claim(ctx, h.cfg.Log, l.Job, runtime.Nonce())
	if err != nil {
		return nil, err
	}
	if n.Plan == nil {
		return nil, fmt.Errorf("the log has no plan of job %q", l.Job)
	}
	c := &controller{h: h, control: n, log: h.cfg.Log}
	if c.present, err = presentOf(l, n.Plan); err != nil {
		return nil, err
	}
	var names []string
	var plans []rescale.Plan
	goals := make([]*rescale.Goal, len(l.Stages))
	for s := range l.Stages {
		names = append(names, l.Plan.Stages[s].Name)
		plans = append(plans, planOf(n.Plan, n.At, s, l.Plan.Stages[s].Partitions > 0))
		for i := range n.Plan.Goal {
			if g := &n.Plan.Goal[i]; g.Name == names[s] {
				goals[s] = &rescale.Goal{Tasks: g.Tasks, Owners: g.Owners}
			}
		}
	}
	c.core = rescale.NewControl(names, plans, goals)
	return c, nil
}

// presentOf returns the layout as of a plan.
func presentOf(l *layout.Layout, p *envelope.Plan) (_ *layout.Layout, err error) {
	for s := range p.Stages {
		if l, err = l.With(s, p.Stages[s].Tasks, p.Stages[s].Owners); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// run appends plans until the goals are reached. It returns how many.
func (c *controller) run(ctx context.Context, j rescale.Tasks) (steps int, err error) {
	marks, err := c.markers()
	if err != nil {
		return 0, err
	}
	defer func() {
		if marks != nil {
			err = errors.Join(err, marks.Close())
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer c.retire(j)
	for {
		d, err := c.next(ctx, j)
		if errors.Is(err, sharedlog.ErrTrimmed) {
			continue // since the tail was read: there are newer markers
		}
		if err != nil {
			return c.steps, err
		}
		c.ended = append(c.ended, d.Ended...)
		if c.saw != nil {
			c.saw(&d)
		}
		wait, ready := time.Minute, marks.Ready()
		for s, tasks := range d.Start {
			for _, task := range tasks {
				did, err := j.Enter(s, task, c.givers(s, task))
				if err != nil {
					return c.steps, err
				}
				if did {
					c.entered = append(c.entered, [2]int{s, task})
				}
				if wait = lookEvery; j.Changed() != nil { // and a newcomer may wait for a worker for long
					wait, ready = time.Second, nil
				}
			}
		}
		switch {
		case d.Plans != nil:
			if err := c.append(ctx, &d); err != nil {
				return c.steps, err
			}
			if c.saw != nil { // also if ctx has ended: the tasks that the plan names must run
				c.saw(&rescale.Decision{})
			}
			continue
		case d.Idle:
			c.h.cfg.Reached(observe.Event{Step: observe.RescaleSettled})
			return c.steps, nil
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return c.steps, fmt.Errorf("%w: %s", context.Cause(ctx), d.Waits)
		case <-j.Done():
			return c.steps, fmt.Errorf("%w: %s", runtime.ErrEnded, d.Waits)
		case <-j.Changed():
		case <-ready:
			_, err := marks.TryNext()
			if errors.Is(err, sharedlog.ErrTrimmed) { // it only tells that there is something new
				err = errors.Join(marks.Close(), c.reopen(&marks))
			}
			if err != nil {
				return c.steps, err
			}
		case <-timer.C:
		}
	}
}

// givers returns the owners of the key groups that a stage's goal gives to a task.
func (c *controller) givers(stage, task int) (of []int) {
	if goal := c.core.Goal(stage); goal != nil {
		for g, to := range goal.Owners {
			if to == task {
				of = append(of, c.control.Plan.Stages[stage].Owners[g])
			}
		}
	}
	return of
}

// retire ends the tasks that were started and that no plan names.
func (c *controller) retire(j rescale.Tasks) {
	for _, t := range c.entered {
		if t[1] >= c.present.Stages[t[0]].Tasks {
			j.Retire(t[0], t[1])
		}
	}
}

// reopen replaces the reader of markers by one that begins at the tail.
func (c *controller) reopen(marks *sharedlog.Reader) (err error) {
	*marks, err = c.markers()
	return err
}

// markers returns a reader that tells when a task of a stage that can be rescaled has made a marker.
func (c *controller) markers() (sharedlog.Reader, error) {
	o := sharedlog.ReaderOptions{From: c.control.At, BelowFloor: true}
	l := c.h.cfg.Layout
	for s := range l.Stages {
		if c.h.refuse(s, 1) != nil && l.Stages[s].Slots == 0 {
			continue
		}
		for task := range l.Stages[s].Groups { // as many as it can have
			o.Tags = append(o.Tags, tags.Task(l.Job, l.Plan.Stages[s].Name, task))
		}
	}
	tail, err := c.log.Tail(context.Background())
	if err != nil {
		return nil, err
	}
	o.From = tail
	return c.log.NewReader(o)
}

// next decides what to do now.
func (c *controller) next(ctx context.Context, j rescale.Tasks) (rescale.Decision, error) {
	tail, err := c.log.Tail(ctx)
	if err != nil {
		return rescale.Decision{}, err
	}
	if why, err := c.adopting(ctx, tail); why != "" || err != nil {
		return rescale.Decision{Waits: why}, err
	}
	f := rescale.Facts{Marks: make([][]*rescale.Marker, len(c.present.Stages)), Runs: func(s, task int) bool {
		return slices.Contains(c.entered, [2]int{s, task}) && j.Runs(s, task) // what runs otherwise has left
	}}
	for s := range c.present.Stages {
		n := c.members(s)
		if n == 0 {
			continue
		}
		f.Marks[s] = make([]*rescale.Marker, n)
		for task := range n {
			m, at, err := records.LastMarker(ctx, c.log, c.present.Job, c.present.Plan.Stages[s].Name, task, tail)
			if err != nil {
				return rescale.Decision{}, err
			}
			f.Marks[s][task], _ = markerOf(m, at)
		}
	}
	return c.core.Next(&f), nil
}

// members returns how many tasks of a stage the controller must know the markers of: none of a stage
// that is not rescaled.
func (c *controller) members(s int) int {
	n := 0
	for i := range c.control.Plan.Moves {
		if m := &c.control.Plan.Moves[i]; int(m.Stage) == s {
			n = max(n, int(m.From)+1, int(m.To)+1, c.present.Stages[s].Tasks)
		}
	}
	if g := c.core.Goal(s); g != nil {
		n = max(n, c.present.Stages[s].Tasks, g.Tasks)
	}
	return n
}

// nextPlan returns the next plan, as yet without a change. All tasks have adopted the routing tables of the newest one.
func (c *controller) nextPlan() *envelope.Plan {
	p := *c.control.Plan
	p.Number, p.Moves, p.Routes, p.Stages, p.Request = max(p.Number, 1)+1, nil, routing.Next(&p), slices.Clone(p.Stages), c.request
	return &p
}

// append appends the plan of a decision.
func (c *controller) append(ctx context.Context, d *rescale.Decision) error {
	p := c.nextPlan()
	p.Goal = nil
	for s := range d.Plans {
		p.Stages[s].Tasks, p.Stages[s].Owners = d.Plans[s].Tasks, d.Plans[s].Owners
		for _, m := range d.Plans[s].Moves {
			p.Moves = append(p.Moves, envelope.Move{Stage: uint32(s), From: uint32(m.From), To: uint32(m.To), Groups: m.Groups, Early: m.Early, Mode: d.Plans[s].Mode})
		}
		if g := d.Goals[s]; g != nil {
			p.Goal = append(p.Goal, envelope.PlanStage{Name: p.Stages[s].Name, Tasks: g.Tasks, Owners: g.Owners})
		}
	}
	if err := c.write(ctx, p, d.Producers); err != nil {
		return err
	}
	c.steps++
	for s := range d.Plans {
		d.Plans[s].LSN = c.control.At
	}
	c.core.Appended(d.Plans, d.Goals)
	c.h.cfg.Reached(observe.Event{Step: observe.RescalePlanned})
	return nil
}

// write appends a plan that changes the number of tasks of some stages, and tells the tasks of it.
func (c *controller) write(ctx context.Context, p *envelope.Plan, of []int) error {
	present, err := presentOf(c.h.cfg.Layout, p)
	if err != nil {
		return err
	}
	var streams []int
	for _, s := range of {
		streams = append(streams, present.Plan.Stages[s].Outputs...)
	}
	c.h.cfg.Reached(observe.Event{Step: observe.RescalePlanning})
	// The end of ctx does not end the wait: whether the plan is in the log would be unknown, and the
	// tasks that it names must run if it is.
	life := c.life
	if life == nil {
		life = context.WithoutCancel(ctx)
	}
	if err := c.control.Append(life, p, present, streams); err != nil {
		return err
	}
	c.present = present
	c.h.cfg.SetPresent(present)
	c.h.tell(p, c.control.At)
	return nil
}
