package manager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Core decides placements. It is pure and used by one goroutine; times are in ms of any clock that
// does not go back.
type Core struct {
	set     Settings
	now     int64
	jobs    map[string]*job
	workers map[string]*worker // by nonce
	tasks   map[TaskKey]*task
	came    int64 // when the newest worker registered
	moved   int64 // when a task was last moved for balance
	tokens  int64 // thousandths of placements
	filled  int64 // when tokens were last refilled
	out     []Action
}

type job struct {
	Job
	id     string // in the log
	phase  Phase
	detail string
	// asked: Register, Copy or Save is in progress. making: the savepoint of Copy and Save, which
	// may no longer be wanted. saved: the newest savepoint that was made, or failed. known: the job
	// is in etcd (else it was deleted).
	asked, known  bool
	making, saved uint64
	// of those tasks that are together
	attempt  int   // all of them that are placed or have ended are in it
	begun    int64 // when the last of them was placed
	failures int
	moves    moves
}

// task is one task. The methods below that set state are its legal transitions.
type task struct {
	key     TaskKey
	state   taskState
	attempt int
	// placed: the worker, the time of the placement, and whether the worker has confirmed it.
	nonce     string
	since     int64
	confirmed bool
	// resting: until when.
	until    int64
	failures int
	// restarts counts the failures that the job's own code caused.
	restarts int
	why      string
	// listed: etcd has an older placement of it, in an attempt that is over.
	listed bool
	// newcomer: no plan names it yet. silent: it waits for that plan at its worker.
	newcomer, silent bool
	givers           []int // of a newcomer's key groups, one for each group
	// shun: workers that do not receive it, until when, and why.
	shun map[string]shunned
}

type shunned struct {
	until int64
	why   string
}

type taskState int

const (
	waiting taskState = iota
	placed
	resting
	drained // for the job's savepoint
	ended
	left // it is none of its stage
)

func (s taskState) String() string {
	return [...]string{"waiting", "placed", "resting", "drained", "ended", "left"}[s]
}

// New returns an empty core.
func New(set Settings, now int64) *Core {
	return &Core{set: set, now: now, came: now, filled: now, tokens: set.Burst * 1000, jobs: map[string]*job{}, workers: map[string]*worker{}, tasks: map[TaskKey]*task{}}
}

// Load sets what earlier managers have written. It is called once, before everything else. Their
// placements stay until there is a reason to change them.
func (c *Core) Load(phases map[string]Phase, ids map[string]string, placements []Placement) {
	for name, p := range phases {
		c.jobs[name] = &job{Job: Job{Name: name}, id: ids[name], phase: p}
	}
	for _, p := range placements {
		t := c.task(p.Task)
		t.attempt = p.Attempt
		switch {
		case p.Ended:
			t.state = ended
		case p.Left:
			t.state = left
		case p.Nonce != "":
			t.state, t.nonce, t.since, t.confirmed, t.newcomer = placed, p.Nonce, c.now, true, p.Newcomer
			c.meet(Worker{Name: p.Worker, Nonce: p.Nonce, Addr: p.Addr}, false)
		}
	}
}

// View sets the jobs and the registered workers. It is called whenever they have changed.
func (c *Core) View(now int64, jobs []Job, workers []Worker) {
	c.now = now
	for _, j := range c.jobs {
		j.known = false
	}
	for _, j := range jobs {
		have := c.jobs[j.Name]
		if have == nil {
			have = &job{phase: Submitted}
			c.jobs[j.Name] = have
		}
		have.Job, have.known = j, true
		for s := range j.Stages {
			for i := range have.members(s) {
				c.task(TaskKey{j.Name, s, i})
			}
		}
		c.align(have)
	}
	for _, w := range c.workers {
		w.leased = false
	}
	for _, w := range workers {
		c.meet(w, true)
	}
}

// Registered answers Register: the job is in the log under id, where attempt is the number of its
// newest attempt; or it is refused for good.
func (c *Core) Registered(now int64, name, id string, attempt int, refused string) {
	c.now = now
	j := c.jobs[name]
	if j == nil || !j.asked {
		return
	}
	j.asked, j.id = false, id
	if refused != "" {
		c.become(j, Refused, refused)
		return
	}
	j.attempt, j.failures = max(j.attempt, attempt), 0
	for _, t := range c.of(j) {
		t.failures, t.restarts = 0, 0
	}
	c.again(j, "")
	c.become(j, Running, "")
}

// Copied answers Copy for the savepoint with this number: the sources may stop now. why, if not empty, says why the savepoint failed. It
// reports false if the core waits for no such answer: the job was stopped meanwhile, and may run again.
func (c *Core) Copied(now int64, name string, number uint64, why string) bool {
	c.now = now
	j := c.jobs[name]
	if j == nil || j.phase != Running || !j.asked || j.making != number {
		return false
	}
	j.asked = false
	if why != "" {
		j.saved = j.making
		c.out = append(c.out, Action{Kind: SetPhase, Job: name, Phase: j.phase}) // with what the server says about the savepoint
		c.note(name, "no savepoint of job %s: %s", name, why)
		return true
	}
	if j.wanted() {
		c.become(j, Draining, "")
	}
	return true
}

// wanted reports whether the savepoint in progress is still wanted: its request may have been
// withdrawn, and another one made. If an earlier manager started it, it is unknown which request it
// was for.
func (j *job) wanted() bool {
	if j.making == 0 {
		j.making = j.Savepoint
	}
	return j.Savepoint > 0 && j.Savepoint == j.making
}

// Saved answers Save. Unless the job is to stop, it resumes, even if the savepoint has failed.
func (c *Core) Saved(now int64, name string, stop bool, what string) {
	c.now = now
	j := c.jobs[name]
	if j == nil || j.phase != Saving {
		return
	}
	j.asked, j.saved, j.Stop = false, j.making, j.Stop || stop
	c.resume(j)
	c.become(j, Stopped, what)
}

// resume lets the tasks restart that have stopped for a savepoint.
func (c *Core) resume(j *job) {
	for _, t := range c.of(j) {
		if t.state == drained {
			t.state = waiting
		}
	}
}

func (c *Core) task(k TaskKey) *task {
	t := c.tasks[k]
	if t == nil {
		t = &task{key: k, shun: map[string]shunned{}}
		c.tasks[k] = t
	}
	return t
}

// become moves a job to another phase; a transition that is not in next is a bug.
func (c *Core) become(j *job, p Phase, detail string) {
	if !slices.Contains(next[j.phase], p) {
		panic(fmt.Sprintf("manager: job %s cannot go from %s to %s", j.Name, j.phase, p)) // invariant: see next
	}
	j.phase, j.detail = p, detail
	c.out = append(c.out, Action{Kind: SetPhase, Job: j.Name, Phase: p, Detail: detail})
}

// write writes a placement; it replaces an unwritten one of the same task.
func (c *Core) write(p Placement) {
	c.out = slices.DeleteFunc(c.out, func(a Action) bool { return a.Kind == Place && a.Placement.Task == p.Task })
	c.out = append(c.out, Action{Kind: Place, Placement: p})
}

func (c *Core) note(job, format string, args ...any) {
	c.out = append(c.out, Action{Kind: Note, Job: job, Detail: fmt.Sprintf(format, args...)})
}

// Tick decides what to do now. It is called after every input and at least every 50 ms.
func (c *Core) Tick(now int64) []Action {
	if now-c.filled > c.set.Deaf {
		for _, w := range c.workers {
			w.lastReport, w.refused = max(w.lastReport, now-c.set.Deaf), 0
		}
	}
	c.tokens = min(c.tokens+(now-c.filled)*c.set.PerSecond, c.set.Burst*1000)
	c.now, c.filled = now, now
	c.judge()
	for _, name := range slices.Sorted(maps.Keys(c.jobs)) {
		c.job(c.jobs[name])
	}
	c.balance()
	out := c.out
	c.out = nil
	return out
}

// job does what is due for one job.
func (c *Core) job(j *job) {
	c.rescale(j)
	if !j.known { // deleted
		for _, t := range c.of(j) {
			delete(c.tasks, t.key)
		}
		delete(c.jobs, j.Name)
		return
	}
	switch j.phase {
	case Submitted:
		switch {
		case j.Stop && !j.asked:
			c.become(j, Stopped, "")
		case !j.Stop && !j.asked:
			j.asked = true
			c.out = append(c.out, Action{Kind: Register, Job: j.Name})
		}
	case Failed:
		if j.Stop {
			c.become(j, Stopping, j.detail)
		}
	case Refused:
		if j.Stop { // a later request for the savepoint starts again
			c.become(j, Stopped, "")
		}
	case Running, Draining:
		if j.Stop {
			c.stop(j)
			return
		}
		if j.phase == Draining && !j.wanted() {
			c.become(j, Running, withdrawn)
		}
		if j.phase == Running && j.Savepoint != j.saved && j.Savepoint > 0 && !j.asked && !j.moves.running {
			j.asked, j.making = true, j.Savepoint
			c.out = append(c.out, Action{Kind: Copy, Job: j.Name})
		}
		c.run(j)
	case Saving:
		switch {
		case j.asked:
		case !j.wanted():
			c.Saved(c.now, j.Name, false, withdrawn)
		default:
			j.asked = true
			c.out = append(c.out, Action{Kind: Save, Job: j.Name})
		}
	case Stopping:
		for _, t := range c.of(j) {
			if t.nonce != "" && !c.released(t) {
				return
			}
			t.nonce = ""
		}
		c.become(j, Stopped, "")
	case Stopped:
		if !j.Stop {
			c.become(j, Submitted, "")
		}
	case Finished:
	}
}

// withdrawn is the reason of a savepoint that was aborted because its request was withdrawn.
const withdrawn = "the savepoint is not wanted any more"

// of returns a job's tasks in order.
func (c *Core) of(j *job) []*task {
	var all []*task
	for _, t := range c.tasks {
		if t.key.Job == j.Name {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *task) int {
		return cmp.Or(a.key.Stage-b.key.Stage, a.key.Task-b.key.Task)
	})
	return all
}

// stop withdraws the placements; the workers commit and end the tasks.
func (c *Core) stop(j *job) {
	c.become(j, Stopping, "")
	c.withdrawAll(j)
}

// withdrawAll ends all placements of a job.
func (c *Core) withdrawAll(j *job) {
	j.asked = false
	for _, t := range c.of(j) {
		if t.state == placed {
			c.write(Placement{Task: t.key, Attempt: t.attempt, Left: t.newcomer})
			t.state, t.why, t.since = waiting, "", c.now
		} else if t.state != ended && t.state != left {
			t.state, t.nonce = waiting, ""
		}
		if t.newcomer {
			t.state, t.newcomer = left, false
		}
	}
}

// released reports whether a withdrawn task no longer runs anywhere.
func (c *Core) released(t *task) bool {
	w := c.workers[t.nonce]
	if w == nil || w.state == gone {
		return true
	}
	r, ok := w.report(t.key, c.jobs[t.key.Job].id)
	return w.reportedSince(t.since) && (!ok || r.State != TaskRunning)
}

// run places waiting tasks and checks the placed ones.
func (c *Core) run(j *job) {
	all := c.of(j)
	done, some := true, false
	for _, t := range all {
		if t.state == placed {
			c.look(t)
		}
		if j.phase == Failed {
			return
		}
		switch {
		case t.state == resting && c.now >= t.until:
			t.state = waiting
		case t.state == drained && j.phase == Running: // the savepoint is not wanted any more, which the task may not have known
			t.state = waiting
		}
		done = done && (t.state == ended || t.state == drained || t.state == left)
		some = some || t.state == drained
	}
	switch {
	case done && some:
		c.become(j, Saving, "")
		return
	case done:
		c.become(j, Finished, "")
		return
	}
	for _, t := range all {
		if t.state == waiting {
			c.place(j, t)
		}
	}
	c.withdraw(j)
}

// look decides whether a placement stays.
func (c *Core) look(t *task) {
	w := c.workers[t.nonce]
	switch {
	case w == nil:
		c.take(t, "its worker is gone")
		return
	case w.state == gone:
		c.take(t, "worker "+w.Name+" is gone: "+w.why)
		return
	}
	r, ok := w.report(t.key, c.jobs[t.key.Job].id)
	switch {
	case !ok || r.Attempt != t.attempt:
		if w.state == alive && c.now-t.since >= c.set.Untaken && w.reportedSince(t.since) {
			why := "did not take it; is it cut off from etcd?"
			if t.confirmed {
				why = "does not run it"
			}
			for _, t := range c.take(t, "worker "+w.Name+" "+why) {
				t.shun[w.Nonce] = shunned{c.now + c.set.Untaken, "did not take it; is it cut off from etcd?"}
			}
		}
		return
	case !t.confirmed:
		t.confirmed = true
	}
	t.silent = t.newcomer && r.State == TaskRunning && r.Instance > 0
	switch r.State {
	case TaskEnded:
		t.state, t.nonce, t.why, t.newcomer = ended, "", "", false
		if c.leaves(t) {
			t.state = left
		}
		c.write(Placement{Task: t.key, Attempt: t.attempt, Ended: t.state == ended, Left: t.state == left})
	case TaskDrained:
		t.state, t.nonce, t.why = drained, "", ""
		c.write(Placement{Task: t.key, Attempt: t.attempt})
	case TaskStopped:
		c.take(t, "worker "+w.Name+" has stopped it")
	case TaskRefused:
		for _, t := range c.take(t, "worker "+w.Name+" cannot run it: "+r.Error) {
			t.shun[w.Nonce] = shunned{1<<63 - 1, "cannot run it: " + r.Error}
		}
	case TaskFailed, TaskFenced:
		failures, since := &t.failures, t.since
		if j := c.jobs[t.key.Job]; j.together(t) {
			failures, since = &j.failures, j.begun
		}
		if c.now-since >= c.set.Forgive {
			*failures, t.restarts = 0, 0
		}
		if j := c.jobs[t.key.Job]; r.User && j.MaxRestarts >= 0 {
			if t.restarts++; t.restarts > j.MaxRestarts {
				c.become(j, Failed, fmt.Sprintf("task %s/%d has failed %d times, the last time at worker %s: %s", j.Stages[t.key.Stage].Name, t.key.Task, t.restarts, w.Name, r.Error))
				c.withdrawAll(j)
				return
			}
		}
		rest := min(c.set.Rest<<min(*failures, 20), c.set.RestMost)
		*failures++
		for _, t := range c.take(t, fmt.Sprintf("failed at worker %s: %s", w.Name, r.Error)) {
			t.state, t.until = resting, c.now+rest
		}
	case TaskRunning:
		if w.logSilent(c) && c.candidate(c.jobs[t.key.Job], t) != nil {
			c.take(t, "worker "+w.Name+" cannot reach the log")
		}
	}
}

// take ends a placement. The next worker's instance fences the old one in the log, so nothing waits
// for the old worker. take returns all tasks that lose their placement, which includes those that
// are together with this one.
func (c *Core) take(t *task, why string) []*task {
	c.note(t.key.Job, "task %v: %s", t.key, why)
	if j := c.jobs[t.key.Job]; j.together(t) {
		return c.again(j, fmt.Sprintf("task %d/%d: %s", t.key.Stage, t.key.Task, why))
	}
	t.state, t.nonce, t.why, t.confirmed, t.silent = waiting, "", why, false, false
	return []*task{t}
}

// place assigns a waiting task to the best worker.
func (c *Core) place(j *job, t *task) {
	if t.attempt == 0 && c.now-c.came < c.set.Gather || t.newcomer && !j.moves.known {
		return
	}
	w := c.warm(j, t)
	if t.newcomer {
		w = c.beside(j, t)
	}
	if w == nil {
		w = c.candidate(j, t)
	}
	if w == nil || c.tokens < 1000 {
		return
	}
	c.tokens -= 1000
	c.give(j, t, w)
}

func (c *Core) give(j *job, t *task, w *worker) {
	t.state, t.nonce, t.since, t.confirmed, t.listed, t.silent = placed, w.Nonce, c.now, false, false, false
	t.attempt++
	if j.together(t) {
		t.attempt, j.begun = j.attempt, c.now
	}
	c.write(Placement{Task: t.key, Worker: w.Name, Nonce: w.Nonce, Addr: w.Addr, Attempt: t.attempt, Newcomer: t.newcomer})
}

// candidate returns the worker with the fewest tasks of the stage, then of all stages, among those
// that can run the task; nil if there is none.
func (c *Core) candidate(j *job, t *task) *worker {
	var best *worker
	var least [2]int
	for _, w := range c.byName() {
		if why := c.unfit(j, t, w); why != "" {
			continue
		}
		n := [2]int{c.load(w, j.Name, t.key.Stage), c.load(w, "", 0)}
		if best == nil || n[0] < least[0] || n[0] == least[0] && n[1] < least[1] {
			best, least = w, n
		}
	}
	return best
}

// load counts the tasks placed with a worker: those of a job's stage, or all of them.
func (c *Core) load(w *worker, job string, stage int) (n int) {
	for _, t := range c.tasks {
		if t.state == placed && t.nonce == w.Nonce && (job == "" || t.key.Job == job && t.key.Stage == stage) {
			n++
		}
	}
	return n
}

// isFull is what unfit says of a worker that has as many tasks as it takes.
const isFull = "is full"

// unfit says why a worker cannot run a task; "" if it can.
func (c *Core) unfit(j *job, t *task, w *worker) string {
	stage := j.Stages[t.key.Stage].Name
	switch {
	case !w.leased && !w.reported:
		return "is not registered"
	}
	if why := w.declines(&j.Job, stage); why != "" {
		return why
	}
	switch {
	case t.shun[w.Nonce].until > c.now:
		return t.shun[w.Nonce].why
	case w.state != alive:
		return "is " + w.state.String()
	case w.last.Leaving:
		return "is leaving"
	case w.logSilent(c):
		return "cannot reach the log"
	case w.Capacity > 0 && c.load(w, "", 0) >= w.Capacity:
		return isFull
	}
	return ""
}

// balance moves one task to a worker that has been registered for a while and that has two tasks of
// its stage fewer than another, and fewer in all, where both can run it.
func (c *Core) balance() {
	if c.now-c.came < c.set.Balance || c.now-c.moved < c.set.Balance/4 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.jobs)) {
		j := c.jobs[name]
		if j.phase != Running || j.moves.running {
			continue
		}
		for _, t := range c.of(j) {
			// Moving a task that is together with others would stop the job.
			if t.state != placed || !t.confirmed || c.now-t.since < c.set.Balance || j.together(t) {
				continue
			}
			from, to := c.workers[t.nonce], c.candidate(j, t)
			if from == nil || to == nil || to == from || c.load(to, "", 0) >= c.load(from, "", 0) || c.load(from, name, t.key.Stage) < c.load(to, name, t.key.Stage)+2 {
				continue
			}
			c.note(name, "task %v: moved from worker %s to %s, which has less to do", t.key, from.Name, to.Name)
			c.give(j, t, to)
			c.moved = c.now
			return
		}
	}
}
