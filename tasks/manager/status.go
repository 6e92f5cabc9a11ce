package manager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tailrace.dev/tailrace/tasks"
)

// Status is the observable state of a manager.
type Status struct {
	Jobs    []JobStatus    `json:"jobs"`
	Workers []WorkerStatus `json:"workers"`
}

// JobStatus is one job of a Status.
type JobStatus struct {
	Name   string       `json:"name"`
	Phase  Phase        `json:"phase"`
	Detail string       `json:"detail,omitempty"`
	Tasks  []TaskStatus `json:"tasks"`
	// Rescale says how far a rescale is; empty if none is under way. Autoscale and Balance say how stages
	// are autoscaled and balanced, Balanced what balancing has measured and done, and Grains how the grains of stages
	// are chosen; the server fills them in.
	Rescale   string           `json:"rescale,omitempty"`
	Autoscale []string         `json:"autoscale,omitempty"`
	Balance   []string         `json:"balance,omitempty"`
	Balanced  []tasks.Balanced `json:"balanced,omitempty"`
	Grains    []tasks.Chosen   `json:"grains,omitempty"`
}

// TaskStatus is one task of a Status.
type TaskStatus struct {
	Stage   string `json:"stage"`
	Task    int    `json:"task"`
	State   string `json:"state"` // waiting, placed, resting, drained or ended
	Worker  string `json:"worker,omitempty"`
	Attempt int    `json:"attempt"`
	// Why it waits or rests, or why its placement changed.
	Why string `json:"why,omitempty"`
}

// WorkerStatus is one worker of a Status.
type WorkerStatus struct {
	Name  string `json:"name"`
	Addr  string `json:"addr"`
	State string `json:"state"`
	Tasks int    `json:"tasks"`
	Why   string `json:"why,omitempty"`
}

// Status describes everything as of the last Tick.
func (c *Core) Status() Status {
	var s Status
	for _, name := range slices.Sorted(maps.Keys(c.jobs)) {
		j := c.jobs[name]
		js := JobStatus{Name: name, Phase: j.phase, Detail: j.detail, Rescale: c.newcomers(j)}
		for _, t := range c.of(j) {
			if t.key.Stage >= len(j.Stages) || t.state == left {
				continue
			}
			ts := TaskStatus{Stage: j.Stages[t.key.Stage].Name, Task: t.key.Task, State: t.state.String(), Attempt: t.attempt, Why: t.why}
			if w := c.workers[t.nonce]; w != nil && t.state == placed {
				ts.Worker = w.Name
			}
			if t.state == waiting && (j.phase == Running || j.phase == Draining) {
				ts.Why = c.waitsFor(j, t)
			}
			js.Tasks = append(js.Tasks, ts)
		}
		s.Jobs = append(s.Jobs, js)
	}
	for _, w := range c.byName() {
		ws := WorkerStatus{Name: w.Name, Addr: w.Addr, State: w.state.String(), Tasks: c.load(w, "", 0)}
		switch {
		case w.state == gone:
			ws.Why = w.why
		case w.last.Leaving:
			ws.Why = "is leaving"
		case w.logSilent(c):
			ws.Why = "cannot reach the log"
		case !w.leased:
			ws.Why = "is not registered in etcd"
		}
		s.Workers = append(s.Workers, ws)
	}
	return s
}

// waitsFor says what a waiting task waits for.
func (c *Core) waitsFor(j *job, t *task) string {
	var why []string
	for _, w := range c.byName() {
		if u := c.unfit(j, t, w); u != "" {
			why = append(why, fmt.Sprintf("worker %s %s", w.Name, u))
		}
	}
	stage := j.Stages[t.key.Stage].Name
	if len(why) == 0 {
		return cmp.Or(t.why, "to be placed")
	}
	return fmt.Sprintf("no worker for stage %s: %s", stage, strings.Join(why, "; "))
}
