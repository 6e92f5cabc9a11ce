package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/manager"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/runtime"
)

// drive moves key groups of a job, and then switches grains. It implements rescale.Tasks: the core places the newcomers. Its
// mutex guards what the loop tells it of them.
type drive struct {
	name     string
	asked    []meta.Rescale
	tables   []meta.Reroute
	switches []*switching
	cancel   context.CancelFunc
	ask      func(k manager.TaskKey, givers []int) bool // asks the core for a newcomer
	changed  chan struct{}

	mu       sync.Mutex
	entered  map[manager.TaskKey]bool // true: it waits for its plan
	refused  map[manager.TaskKey]bool // a task of that number has not ended
	progress rescale.Progress
}

// Enter implements rescale.Tasks.
func (d *drive) Enter(stage, task int, givers []int) (bool, error) {
	k := manager.TaskKey{Job: d.name, Stage: stage, Task: task}
	d.mu.Lock()
	_, entered := d.entered[k]
	d.mu.Unlock()
	if entered {
		return false, nil
	}
	did := d.ask(k, givers)
	d.mu.Lock()
	defer d.mu.Unlock()
	if did {
		d.entered[k] = false
	} else {
		d.refused[k] = true
	}
	return did, nil
}

// Restart implements rescale.Tasks: requests that need it are refused (handover.Check).
func (d *drive) Restart() error { return rescale.ErrRestart }

// Retire implements rescale.Tasks: the core withdraws newcomers that no Move needs.
func (d *drive) Retire(int, int) {}

// Runs implements rescale.Tasks.
func (d *drive) Runs(stage, task int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.entered[manager.TaskKey{Job: d.name, Stage: stage, Task: task}]
}

// Changed implements rescale.Tasks.
func (d *drive) Changed() <-chan struct{} { return d.changed }

// Done implements rescale.Tasks: the core ends a Move of a job that runs no more.
func (d *drive) Done() <-chan struct{} { return nil }

// refresh tells the drives which newcomers wait for their plans, and which can enter now.
func (r *term) refresh() {
	for _, d := range r.drives {
		d.mu.Lock()
		for k, was := range d.entered {
			if now := r.core.Silent(k); now != was {
				d.entered[k] = now
				d.poke()
			}
		}
		for k := range d.refused {
			if r.core.Vacant(k) {
				delete(d.refused, k)
				d.poke()
			}
		}
		d.mu.Unlock()
	}
}

func (d *drive) poke() {
	select {
	case d.changed <- struct{}{}:
	default: // it has a token
	}
}

// asked returns the requests of a job that have no outcome.
func (r *term) asked(name string) []meta.Rescale {
	st := r.states[name]
	return slices.DeleteFunc(slices.Clone(r.jobs[name].Rescale), func(a meta.Rescale) bool { return st.Answered(&a) })
}

// tidy removes requests whose outcomes are in etcd, and what was written about jobs while they were deleted.
func (r *term) tidy(ctx context.Context, v meta.View, wg *sync.WaitGroup) {
	orphans := map[string]bool{}
	for name := range v.States {
		orphans[name] = true
	}
	for key := range v.Tasks {
		orphans[key.Job] = true
	}
	for name := range orphans {
		if _, known := v.Jobs[name]; known {
			continue
		}
		wg.Go(func() {
			if err := r.opt.Store.Sweep(ctx, name); err != nil && ctx.Err() == nil {
				r.opt.Logger.Debug("what is left of a deleted job in etcd is not removed; it is at the next change", "job", name, "error", err)
			}
		})
	}
	for name, j := range v.Jobs {
		st := v.States[name]
		answered := func(a meta.Rescale) bool { return st.Answered(&a) }
		rerouted := func(a meta.Reroute) bool { return st.HasRerouted(&a) }
		saved := j.Savepoint != nil && st.HasSaved(j.Savepoint)
		if !slices.ContainsFunc(j.Rescale, answered) && !slices.ContainsFunc(j.Reroute, rerouted) && !saved {
			continue
		}
		wg.Go(func() {
			err := r.opt.Store.Change(ctx, name, func(j *meta.Job) error {
				j.Rescale = slices.DeleteFunc(j.Rescale, answered)
				j.Reroute = slices.DeleteFunc(j.Reroute, rerouted)
				j.CloseSavepoint(&st)
				return nil
			})
			if err != nil && ctx.Err() == nil {
				r.opt.Logger.Debug("a request that has an outcome is not removed; it is at the next change", "job", name, "error", err)
			}
		})
	}
}

// move starts to move key groups of a job.
func (r *term) move(life context.Context, name string, tell func(func()), wg *sync.WaitGroup) {
	ctx, cancel := context.WithCancel(life)
	d := &drive{name: name, asked: r.byLoad(name, r.asked(name)), tables: r.tables(name), switches: r.wishes(name), cancel: cancel, changed: make(chan struct{}, 1), entered: map[manager.TaskKey]bool{}, refused: map[manager.TaskKey]bool{}}
	d.ask = func(k manager.TaskKey, givers []int) bool {
		said := make(chan bool, 1)
		tell(func() { said <- r.core.Enter(now(), k, givers) })
		select {
		case did := <-said:
			return did
		case <-life.Done():
			return false
		}
	}
	r.drives[name] = d
	spec, id := r.jobs[name].Spec, r.states[name].ID
	wg.Go(func() {
		defer cancel()
		done := r.drive(ctx, life, d, spec, id, tell)
		tell(func() {
			if r.drives[name] == d { // else the job was deleted, and submitted again
				delete(r.drives, name)
				r.core.Moved(now(), name, done)
			}
		})
	})
}

// drive moves key groups until all goals are reached, and then switches grains, or ctx ends. It reports which.
func (r *term) drive(ctx, life context.Context, d *drive, spec *tasks.Spec, id string, tell func(func())) (done bool) {
	var asked open[rescale.Request]
	for i, a := range d.asked {
		asked.add(i, rescale.Request{Stage: a.Stage, Tasks: a.Tasks, Strategy: a.Strategy, Owners: a.Owners, Have: a.Have, Batch: a.Batch, Mode: a.Mode, ID: a.ID, Cancel: a.Cancel})
	}
	tables := r.wanted(d, tell)
	for {
		err := r.leader.Leads(ctx) // a deposed manager must not take the plans from the one that leads
		var rescaler tasks.Rescaler
		if err == nil {
			rescaler, err = spec.Rescaler(ctx, r.confirmed(), id, tasks.Options{Logger: r.opt.Logger, Observer: r.opt.Observer})
		}
		switch {
		case err != nil:
		case rescaler == nil:
			r.refuse(d, spec, tell)
			return true
		default:
			err = attempt(ctx, life, rescaler, d, &asked, &tables, func(p *rescale.Progress) { r.progressed(d, p, tell) })
		}
		switch {
		case err == nil:
			return r.switchGrains(ctx, life, d, rescaler, tell)
		case ctx.Err() != nil:
			return false
		}
		r.opt.Logger.Warn("key groups cannot move; trying again", "job", d.name, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// refuse answers the requests of a job whose protocol cannot move key groups.
func (r *term) refuse(d *drive, spec *tasks.Spec, tell func(func())) {
	var p rescale.Progress
	for i, a := range d.asked {
		o := rescale.Outcome{Request: i, Error: "the job's key groups cannot move"}
		if err := spec.CheckRescale(tasks.Rescale{Stage: a.Stage, Tasks: a.Tasks}); err != nil {
			o.Error = err.Error()
		}
		p.Done = append(p.Done, o)
	}
	for i := range d.tables {
		p.Rerouted = append(p.Rerouted, rescale.Outcome{Request: i, Error: "the job's key groups cannot move"})
	}
	tell(func() {
		if r.drives[d.name] == d {
			r.outcomes(d, &p)
		}
		for _, w := range d.switches {
			r.switched(w, runtime.ErrNoHandover)
		}
	})
}

// progressed handles what a drive says of its progress.
func (r *term) progressed(d *drive, p *rescale.Progress, tell func(func())) {
	d.mu.Lock()
	d.progress = *p
	d.mu.Unlock()
	tell(func() {
		if r.drives[d.name] == d {
			r.planned(d.name, &newestPlan{p.Tasks, p.Members, p.Goal})
			r.outcomes(d, p)
		}
	})
}

// outcomes notes the outcomes of requests, to be written.
func (r *term) outcomes(d *drive, p *rescale.Progress) {
	st := r.states[d.name]
	for _, o := range p.Done {
		a := &d.asked[o.Request]
		if st.Answered(a) {
			continue
		}
		out := meta.Rescaled{Rescaled: o.Result, Number: a.Number, Error: o.Error}
		out.Stage = a.Stage
		text := "stage " + a.Stage + ": " + o.Error
		if o.Error == "" {
			text = o.Result.String()
		}
		r.say(d.name, text)
		st.Rescaled = append(slices.DeleteFunc(slices.Clone(st.Rescaled), func(old meta.Rescaled) bool { return old.Stage == a.Stage }), out)
		r.changed[d.name] = true
	}
	r.states[d.name] = st
	r.rerouted(d, p)
}

// newestPlan is what the core needs of the newest plan of a job: see manager.Core.Planned.
type newestPlan struct {
	tasks, members []int
	goal           bool
}

func (r *term) newestPlan(ctx context.Context, id string) (p newestPlan, err error) {
	p.tasks, p.members, p.goal, err = tasks.NewestPlan(ctx, r.opt.Log, id)
	return p, err
}

// planned passes the newest plan of a job to the core, and to those who read etcd.
func (r *term) planned(name string, p *newestPlan) {
	r.core.Planned(now(), name, p.tasks, p.members, p.goal)
	st := r.states[name]
	if slices.Equal(st.Tasks, p.tasks) {
		return
	}
	if j := r.jobs[name]; len(st.Tasks) == 0 && j.Spec != nil {
		if n, err := j.Spec.Tasks(); err == nil && slices.Equal(n, p.tasks) {
			return // it was never rescaled
		}
	}
	st.Tasks = slices.Clone(p.tasks)
	r.states[name], r.changed[name] = st, true
}

// learn reads the newest plan of a job that an earlier manager has registered.
func (r *term) learn(ctx context.Context, name, id string, tell func(func())) {
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		p, err := r.newestPlan(try, id)
		cancel()
		if err == nil {
			tell(func() {
				if r.states[name].ID == id {
					r.planned(name, &p)
				}
			})
			return
		}
		if ctx.Err() != nil {
			return
		}
		r.opt.Logger.Warn("cannot read the plan of a job; trying again", "job", name, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// finishStep waits until no key group of a job is on its way: its tasks would not stop for a savepoint. The core learns of the newest plan,
// which a manager that leads no more may have appended late: the tasks that it names must run.
func (r *term) finishStep(ctx context.Context, j meta.Job, id string, tell func(func())) error {
	rescaler, err := j.Spec.Rescaler(ctx, r.confirmed(), id, tasks.Options{Logger: r.opt.Logger, Observer: r.opt.Observer})
	if err != nil || rescaler == nil {
		return err
	}
	return rescaler.FinishStep(ctx, func(p *rescale.Progress) {
		newest, name := &newestPlan{p.Tasks, p.Members, p.Goal}, j.Spec.Name
		tell(func() {
			if r.states[name].ID == id {
				r.planned(name, newest)
			}
		})
	})
}

// status is the core's status, with the progress of rescales and what autoscales, balances and chooses grains.
func (r *term) status() manager.Status {
	s := r.core.Status()
	for i := range s.Jobs {
		s.Jobs[i].Autoscale = r.autoscaled(s.Jobs[i].Name)
		s.Jobs[i].Balance, s.Jobs[i].Balanced = r.balanced(s.Jobs[i].Name)
		s.Jobs[i].Grains = r.grains(s.Jobs[i].Name)
		d := r.drives[s.Jobs[i].Name]
		if d == nil {
			continue
		}
		d.mu.Lock()
		p := d.progress
		d.mu.Unlock()
		if why := s.Jobs[i].Rescale; why != "" {
			p.Waits = why // says more than that it does not run
		}
		if text := p.String(); text != "" {
			s.Jobs[i].Rescale = text
		}
	}
	return s
}
