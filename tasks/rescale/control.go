package rescale

import (
	"fmt"
	"slices"
)

// Goal is what a stage is to become.
type Goal struct {
	// Tasks is the number of tasks, Owners the owner of each key group.
	Tasks  int
	Owners []int
	// Strategy is the name of the strategy that made the owners, ID says who asked: for reports.
	Strategy, ID string
	// Batch is as in Steps, Mode the name of the mode.
	Batch int
	Mode  string
	// Late: newcomers, too, take over at P. Of a stage that reads a source they do not: it is nowhere at P.
	Late bool
}

// Control decides what the next plan of a job is. It is the core of the process that appends plans,
// which appends on condition that it still does, and that no other plan is in the log above the one
// that the Control knows. Another process that takes over starts with the newest plan, which
// contains the goals.
type Control struct {
	names []string
	plan  []Plan  // the newest one, by stage
	goals []*Goal // by stage, nil: it is reached
	noted []*Goal // as the newest plan has them
}

// Facts is what Control decides from.
type Facts struct {
	// Marks are the newest markers of the tasks, by stage: of all tasks that the stage has, or had and
	// that have not left, or gets by its goal. nil: the task has none.
	Marks [][]*Marker
	// Runs reports whether a task runs somewhere: an instance has replaced its predecessors, and if
	// it is a newcomer, it waits for the plan that gives it groups.
	Runs func(stage, task int) bool
	// Savepoint: a savepoint is wanted, or in progress.
	Savepoint bool
	// Backlog: the job is behind its input by more than a second.
	Backlog bool
}

// Decision is what the process that appends plans does now.
type Decision struct {
	// Plans is the plan to append, by stage, with the goals that remain behind it; nil: none.
	Plans []Plan
	Goals []*Goal
	// Producers: the number of tasks of these stages changes, so the group of the plan contains the
	// producers of their streams.
	Producers []int
	// Start are the newcomers, by stage, that must run before the next plan can be appended.
	Start [][]int
	// Waits says what for, if there is a goal and no plan; Idle: all goals are reached.
	Waits string
	Idle  bool
	// Ended are the stages whose goals are given up, because they have ended.
	Ended []int
	// Settled: the step of the newest plan is done.
	Settled bool
}

// NewControl returns a Control for the stages with these names, as of the newest plan and its goals.
func NewControl(names []string, plan []Plan, goals []*Goal) *Control {
	return &Control{names: names, plan: slices.Clone(plan), goals: slices.Clone(goals), noted: slices.Clone(goals)}
}

// Ask replaces the goal of a stage, from the end of the present step on. The goal must be one that
// Check allows.
func (c *Control) Ask(stage int, g Goal) { c.goals[stage] = &g }

// Cancel makes what a stage is at the end of the present step its goal.
func (c *Control) Cancel(stage int) { c.goals[stage] = nil }

// Goal returns the goal of a stage, nil if it is reached.
func (c *Control) Goal(stage int) *Goal { return c.goals[stage] }

// Reached reports whether a stage has no goal, and the newest plan has none for it. If the step of
// that plan is done, too (Decision.Settled), its last rescale is complete.
func (c *Control) Reached(stage int) bool { return c.goals[stage] == nil && c.noted[stage] == nil }

// Appended tells that the plan of a decision is in the log; its LSN is set.
func (c *Control) Appended(plans []Plan, goals []*Goal) {
	c.plan, c.goals, c.noted = slices.Clone(plans), slices.Clone(goals), slices.Clone(goals)
}

// Next decides what to do now.
func (c *Control) Next(f *Facts) Decision {
	for s := range c.plan {
		if why := Unfinished(&c.plan[s], f.Marks[s]); why != "" {
			return Decision{Waits: fmt.Sprintf("%s: %s", c.names[s], why)}
		}
	}
	d := Decision{Settled: true}
	plans, goals := slices.Clone(c.plan), slices.Clone(c.goals)
	d.Idle, d.Start = true, make([][]int, len(plans))
	changed := false
	for s, g := range c.goals {
		p := &plans[s]
		p.Number, p.LSN, p.Moves, p.Mode = p.Number+1, 0, nil, ""
		if g == nil {
			if c.noted[s] != nil { // cancelled: the next Control must not resume it
				d.Idle, changed = false, true
			}
			continue
		}
		batch := g.Batch
		if f.Backlog {
			batch = 0 // each step at P waits once until the backlog is processed
		}
		steps := Steps(p.Owners, p.Tasks, g.Owners, g.Tasks, batch, p.Source || !g.Late)
		if p.Source && slices.ContainsFunc(steps, func(s Step) bool { return slices.Contains(counts(s.Owners, s.Tasks), 0) }) {
			// A task without partitions would say that its input has ended.
			steps = Steps(p.Owners, p.Tasks, g.Owners, g.Tasks, 0, true)
		}
		if len(steps) == 0 {
			goals[s], c.goals[s] = nil, nil
			continue
		}
		marks := f.Marks[s][:min(p.Tasks, len(f.Marks[s]))]
		if slices.ContainsFunc(f.Marks[s], func(m *Marker) bool { return m != nil && m.Ended && !m.Left }) {
			d.Ended = append(d.Ended, s)
			goals[s], c.goals[s] = nil, nil
			if c.noted[s] != nil { // as if it had been cancelled
				d.Idle, changed = false, true
			}
			continue
		}
		d.Idle = false
		task := slices.Index(marks, nil)
		if task < 0 {
			task = len(marks)
		}
		if task < p.Tasks {
			d.Waits = fmt.Sprintf("task %s/%d has not started", c.names[s], task)
			return d
		}
		for task := p.Tasks; task < steps[0].Tasks; task++ {
			if !f.Runs(s, task) {
				d.Start[s] = append(d.Start[s], task)
				d.Waits = fmt.Sprintf("newcomer %s/%d does not run", c.names[s], task)
			}
		}
		if steps[0].Tasks != p.Tasks {
			d.Producers = append(d.Producers, s)
		}
		p.Tasks, p.Owners, p.Moves, p.Mode = steps[0].Tasks, steps[0].Owners, steps[0].Moves, g.Mode
		if len(steps) == 1 {
			goals[s] = nil
		}
		changed = true
	}
	switch {
	case d.Idle || d.Waits != "":
	case f.Savepoint:
		d.Waits = "a savepoint is being made"
	case changed:
		d.Plans, d.Goals = plans, goals
	}
	if d.Plans == nil {
		d.Producers = nil
	}
	return d
}

func mark(marks []*Marker, task int) *Marker {
	if task < len(marks) {
		return marks[task]
	}
	return nil
}

// Unfinished says what the step of a plan waits for, "" if it is done: then each group that moves is
// owned by its receiver's newest marker, whose position is above the plan, and each task that leaves
// has left. While a step is not done, no other plan is made, and the log keeps what its tasks may
// read: the plan, the task logs of its givers from the plan on, and input from the low of each of
// its releases on (Keeps).
func Unfinished(p *Plan, marks []*Marker) string {
	for i := range p.Moves {
		m := &p.Moves[i]
		giver, receiver := mark(marks, m.From), mark(marks, m.To)
		over := receiver != nil && receiver.Ended && receiver.LSN > p.LSN
		started := receiver != nil && (!receiver.Left || over)
		behind := receiver != nil && receiver.Position <= p.LSN
		if p.Source {
			behind = receiver != nil && receiver.Plan < p.Number
		}
		for _, g := range m.Groups {
			switch {
			case p.Source && behind && receiver.Ended && !receiver.Left: // it had ended before: the giver keeps the partition
			case giver == nil || !giver.Ended && giver.owns(g):
				return fmt.Sprintf("task %d has not released key group %d", m.From, g)
			case over:
			case giver.owns(g): // it has ended with its giver, as the stage has
				if !started || behind { // it will look for the giver's markers
					return fmt.Sprintf("task %d has not ended", m.To)
				}
			case !started || !receiver.owns(g):
				return fmt.Sprintf("task %d has not taken over key group %d", m.To, g)
			case behind:
				return fmt.Sprintf("task %d has not processed its input up to LSN %d", m.To, p.LSN)
			}
		}
	}
	for task := p.Tasks; task < len(marks); task++ {
		if m := marks[task]; m != nil && !m.Ended {
			return fmt.Sprintf("task %d has not left", task)
		}
	}
	return ""
}
