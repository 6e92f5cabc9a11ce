package manager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"tailrace.dev/tailrace/tasks"
)

type worker struct {
	Worker
	state workerState
	why   string // it is gone
	// leased: it is registered. reported: it has reported, last at lastReport; before its first report,
	// lastReport is when the manager first knew of it.
	leased, reported bool
	lastReport       int64
	// refused: since when connections to its address are refused; 0: they are not.
	refused int64
	last    Report
}

// declines says why a worker never runs a stage of a job; "" if it may.
func (w *Worker) declines(j *Job, stage string) string {
	switch {
	case w.Program != j.Program:
		return fmt.Sprintf("is program %q, not %q", w.Program, j.Program)
	case !tasks.RunsFormat(w.Format, j.Format):
		return fmt.Sprintf("is of format %s, the job is of %s: use programs of one release", w.Format, j.Format)
	case len(w.Jobs) > 0 && !slices.Contains(w.Jobs, j.Name):
		return "runs other jobs only"
	case len(w.Stages) > 0 && !slices.Contains(w.Stages, stage):
		return "does not run stage " + stage
	}
	for _, name := range slices.Sorted(maps.Keys(w.Labels)) {
		if v := w.Labels[name]; j.Labels[name] != v {
			return fmt.Sprintf("runs jobs with %s %s only", name, v)
		}
	}
	return ""
}

type workerState int

const (
	fresh workerState = iota
	alive
	silent
	gone
)

func (s workerState) String() string { return [...]string{"new", "alive", "silent", "gone"}[s] }

// meet adds a worker, or updates what has changed about it.
func (c *Core) meet(w Worker, leased bool) *worker {
	have := c.workers[w.Nonce]
	if have == nil {
		have = &worker{lastReport: c.now}
		c.workers[w.Nonce] = have
		if leased {
			c.came = c.now
		}
	}
	if leased || have.Addr == "" {
		have.Worker = w
	}
	have.leased = have.leased || leased
	return have
}

// Reported handles a worker's report, which came from addr.
func (c *Core) Reported(now int64, addr string, r Report) {
	c.now = now
	for _, w := range c.workers {
		if w.Addr == addr && w.Nonce != r.Nonce { // another process listens there now
			w.refused = max(w.refused, 1)
		}
	}
	w := c.workers[r.Nonce]
	if w == nil {
		return // it will be listed later
	}
	w.reported, w.lastReport, w.refused, w.last = true, now, 0, r
}

// Lost records that the connection to an address ended or failed. refused: nothing listens there.
func (c *Core) Lost(now int64, addr string, refused bool) {
	c.now = now
	for _, w := range c.workers {
		if w.Addr == addr && refused && w.refused == 0 {
			w.refused = now
		}
	}
}

// Watch returns the addresses of the workers whose reports the core needs.
func (c *Core) Watch() []string {
	var addrs []string
	for _, w := range c.workers {
		if w.leased || w.state != gone {
			addrs = append(addrs, w.Addr)
		}
	}
	slices.Sort(addrs)
	return slices.Compact(addrs)
}

// judge sets the state of each worker.
func (c *Core) judge() {
	for _, w := range c.byName() {
		quiet := c.now - w.lastReport
		before := w.state
		switch {
		case w.refused != 0 && c.now-w.refused >= c.set.Refused:
			w.state, w.why = gone, "nothing listens at "+w.Addr
		case !w.leased && quiet >= c.set.Silent:
			w.state, w.why = gone, fmt.Sprintf("not registered, and no report for %d ms", quiet)
		case !w.reported:
			w.state = fresh
		case quiet < c.set.Silent && w.refused == 0:
			w.state = alive
		default:
			w.state = silent
		}
		if w.state != before {
			switch {
			case w.state == gone:
				c.note("", "worker %s is gone: %s", w.Name, w.why)
			case w.state == alive && before == gone:
				c.note("", "worker %s is back", w.Name)
			case w.state == silent:
				c.note("", "worker %s is silent, its lease holds", w.Name)
			}
		}
		if w.state == gone && !w.leased && c.load(w, "", 0) == 0 {
			delete(c.workers, w.Nonce)
		}
	}
}

func (c *Core) byName() []*worker {
	return slices.SortedFunc(maps.Values(c.workers), func(a, b *worker) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Nonce, b.Nonce))
	})
}

// report returns what the worker reports about a task of the job with this id.
func (w *worker) report(k TaskKey, id string) (TaskReport, bool) {
	for _, t := range w.last.Tasks {
		if t.Key() == k && t.ID == id {
			return t, true
		}
	}
	return TaskReport{}, false
}

func (w *worker) reportedSince(t int64) bool { return w.reported && w.lastReport > t }

func (w *worker) logSilent(c *Core) bool { return w.last.LogSilent >= c.set.LogSilent }
