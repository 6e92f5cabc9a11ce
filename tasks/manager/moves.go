package manager

import (
	"fmt"
	"slices"
)

// Key groups move between the tasks of a running job (docs/adr/0053, 0058). The plans in the log say
// which tasks a stage has. The server appends them, while the core lets it (Move, Hold), as package
// rescale decides; the core places the tasks:
//
//	            Enter            the worker reports an instance        Planned
//	(no task) ---------> newcomer ---------------------------> silent ---------> a task of its stage
//	    ^                  |                                     |                     |
//	    +---- left <-------+-------------------------------------+        it ends, and the newest plan
//	          ^             no Move is wanted any more                     does not name it
//	          +--------------------------------------------------------------------+
//
// A newcomer is placed like any task, and placed again if its worker is gone; it appends nothing
// until a plan names it, so it can be withdrawn without a trace. A task that leaves is placed until
// it has ended: only its own marker says that it has left.
//
// At most one Move runs for a job, in the phase Running, and none while a savepoint is made: tasks
// stop for it when no key group is on its way. A manager that begins to lead knows the tasks of a job
// from etcd; before it has read the newest plan it places no newcomer, because a task that has left
// since, started as one, would wait for ever.

// moves is what the core knows of a job's key groups and their moves.
type moves struct {
	// known: the newest plan was read; tasks, and members with those that leave by it and have not
	// left, are the numbers of tasks by stage. goal: it leads to another one.
	known          bool
	tasks, members []int
	goal           bool
	// running: a Move is in progress, for the requests up to number; held: it is to end. done is the
	// highest number of the requests that have an outcome.
	running, held bool
	number, done  uint64
	// switches: the server has grains to switch, which no Move has taken; switching: the Move in progress has.
	switches, switching bool
}

// members returns how many tasks of a stage there must be.
func (j *job) members(stage int) int {
	if j.moves.known && stage < len(j.moves.members) {
		return j.moves.members[stage]
	}
	return j.Stages[stage].Tasks
}

// leaves reports whether the newest plan does not name a task that is no newcomer.
func (c *Core) leaves(t *task) bool {
	m := &c.jobs[t.key.Job].moves
	return m.known && t.key.Stage < len(m.tasks) && t.key.Task >= m.tasks[t.key.Stage]
}

// Planned says what the newest plan in the log of a job is: how many tasks each stage has, how many
// with those that leave by it and have not left (then none of the others enters), and whether it leads
// to another one.
func (c *Core) Planned(now int64, name string, tasks, members []int, goal bool) {
	c.now = now
	j := c.jobs[name]
	if j == nil {
		return
	}
	m := &j.moves
	m.known, m.tasks, m.members, m.goal = true, slices.Clone(tasks), slices.Clone(members), goal
	for s := range members {
		for i := range members[s] {
			t := c.task(TaskKey{name, s, i})
			t.newcomer = false
			if t.state == left && i < tasks[s] {
				t.state = waiting
			}
		}
	}
	for _, t := range c.of(j) {
		if t.state == ended && c.leaves(t) { // it has ended before the plan was known here
			t.state = left
			c.write(Placement{Task: t.key, Attempt: t.attempt, Left: true})
		}
	}
}

// Enter asks for a task that the next plan is to name. It reports whether there is one now: not while
// a task of that number has not ended, which has left, or is about to. givers are the owners of the key
// groups that it is to get, one for each group: it is placed where copies of them are, if it can be.
func (c *Core) Enter(now int64, k TaskKey, givers []int) bool {
	c.now = now
	j := c.jobs[k.Job]
	if j == nil || !j.moves.running || j.moves.held {
		return false
	}
	if t := c.tasks[k]; t != nil && t.newcomer {
		return true
	}
	if !c.Vacant(k) {
		return false
	}
	t := c.task(k)
	t.state, t.newcomer, t.nonce, t.why, t.failures, t.restarts = waiting, true, "", "", 0, 0
	t.givers = slices.Clone(givers)
	return true
}

// Vacant reports whether there is no task of that number, or it has ended.
func (c *Core) Vacant(k TaskKey) bool {
	t := c.tasks[k]
	return t == nil || t.state == ended || t.state == left
}

// Silent reports whether a newcomer runs at a worker and waits for the plan that names it.
func (c *Core) Silent(k TaskKey) bool {
	t := c.tasks[k]
	return t != nil && t.newcomer && t.state == placed && t.silent
}

// Switch asks for a Move in which the server switches grains of stages: one plan for each, when no key group is on its
// way. While a Move runs, or a savepoint is made, it waits.
func (c *Core) Switch(now int64, name string) {
	c.now = now
	if j := c.jobs[name]; j != nil {
		j.moves.switches = true
	}
}

// Moved answers Move: it has ended. done: all requests that it was for have an outcome, and all goals
// are reached.
func (c *Core) Moved(now int64, name string, done bool) {
	c.now = now
	j := c.jobs[name]
	if j == nil || !j.moves.running {
		return
	}
	m := &j.moves
	m.running, m.held = false, false
	m.switches, m.switching = m.switches || m.switching && !done, false
	if done {
		m.done, m.goal = max(m.done, m.number), false
	}
}

// rescale starts and ends the Move of a job, and withdraws newcomers that it has left.
func (c *Core) rescale(j *job) {
	m := &j.moves
	due := j.known && j.phase == Running && !j.Stop && !j.asked && (j.Savepoint == 0 || j.Savepoint == j.saved) && (j.Rescale > m.done || m.goal || m.switches || m.switching)
	switch {
	case due && !m.running:
		m.running, m.number, m.switching, m.switches = true, j.Rescale, m.switches, false
		c.out = append(c.out, Action{Kind: Move, Job: j.Name})
	case m.running && !m.held && (!due || j.Rescale > m.number):
		m.held = true
		c.out = append(c.out, Action{Kind: Hold, Job: j.Name})
	case !due && !m.running && m.known:
		for _, t := range c.of(j) {
			if t.newcomer {
				c.write(Placement{Task: t.key, Attempt: t.attempt, Left: true})
				t.state, t.newcomer, t.nonce, t.why = left, false, "", ""
			}
		}
	}
}

// newcomers says what a newcomer waits for that has no worker; "" if none waits.
func (c *Core) newcomers(j *job) string {
	for _, t := range c.of(j) {
		if !t.newcomer || t.state != waiting {
			continue
		}
		stage := j.Stages[t.key.Stage].Name
		workers, capacity, load, full := 0, 0, 0, true
		for _, w := range c.byName() {
			if w.declines(&j.Job, stage) != "" || c.unfit(j, t, w) == "is not registered" {
				continue
			}
			workers++
			capacity += w.Capacity
			load += c.load(w, "", 0)
			full = full && c.unfit(j, t, w) == isFull
		}
		if full && workers > 0 {
			plural := "s"
			if workers == 1 {
				plural = ""
			}
			return fmt.Sprintf("newcomer %s/%d found no worker: %d worker%s, capacity %d of %d", stage, t.key.Task, workers, plural, load, capacity)
		}
		return fmt.Sprintf("newcomer %s/%d waits: %s", stage, t.key.Task, c.waitsFor(j, t))
	}
	return ""
}
