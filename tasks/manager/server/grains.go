package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/grains"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/status"
)

// The leading manager chooses the grains of stages of jobs on workers as one process does (package grains): it asks the workers
// each second what their tasks have measured. No other process asks for a switch, so there are no requests in etcd: a switch
// that has no plan in the log when the manager ends is decided anew by the next one (docs/adr/0087).

// looks is how often a manager decides.
const looks = time.Second

// old is when a switch is not made any more that was decided so long ago: key groups have moved meanwhile, and what has been measured
// since then may say otherwise.
const old = 3 * looks

var errOld = errors.New("key groups have moved since it was decided: it is decided anew")

// chosen names a chooser: another job of that name has another one.
type chosen struct{ job, id, stage string }

// chooser chooses the grain of one stage of a job. It implements grains.Job.
type chooser struct {
	chosen
	server  *Server
	index   int // of the stage
	cancel  context.CancelFunc
	busy    atomic.Bool
	workers atomic.Pointer[[]string] // the addresses of all workers
	grain   atomic.Pointer[tasks.Grain]
	chooser atomic.Pointer[grains.Chooser]
	ask     func(w *switching) // has the loop carry it out
	forget  func(w *switching)
}

// switching is a switch that has no outcome yet.
type switching struct {
	chosen
	runtime.Switch
	asked time.Time
	said  chan error // has room for the outcome
}

// choose starts and ends choosers: each stage of a running job whose stream has WatermarkPer(Auto) has one.
func (r *term) choose(ctx context.Context, tell func(func()), wg *sync.WaitGroup) {
	wanted, addrs := map[chosen]bool{}, r.addrs
	for name, j := range r.jobs {
		st := r.states[name]
		if !measures(&j, &st) {
			continue
		}
		for i := range j.Spec.Plan.Stages {
			stage := &j.Spec.Plan.Stages[i]
			if !stage.Switches() {
				continue
			}
			k := chosen{name, st.ID, stage.Name}
			wanted[k] = true
			c := r.choosers[k]
			if c == nil {
				c = &chooser{chosen: k, server: r.Server, index: i}
				c.ask = func(w *switching) {
					tell(func() {
						r.switches[k] = w
						r.core.Switch(now(), k.job)
					})
				}
				c.forget = func(w *switching) {
					tell(func() {
						if r.switches[k] == w {
							delete(r.switches, k)
						}
					})
				}
				r.choosers[k] = c
				var run context.Context
				run, c.cancel = context.WithCancel(ctx)
				wg.Go(func() { c.run(run, stage.Grain.Delay) })
			}
			c.busy.Store(r.drives[name] != nil || st.Phase != meta.Running || j.Savepoint != nil)
			c.workers.Store(&addrs)
		}
	}
	for k, c := range r.choosers {
		if !wanted[k] {
			c.cancel()
			delete(r.choosers, k)
		}
	}
}

// run chooses until ctx ends.
func (c *chooser) run(ctx context.Context, delay int64) {
	for c.read(ctx); c.grain.Load() == nil; c.read(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
	of := grains.New(c, c.server.opt.Logger.With("job", c.job), c.stage, delay)
	c.chooser.Store(of)
	of.Run(ctx, looks)
}

// read reads the grain as of the newest plan; if the log does not answer, the one before stays.
func (c *chooser) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	if g, err := tasks.GrainOf(ctx, c.server.opt.Log, c.id, c.index); err == nil {
		c.grain.Store(&g)
	} else if ctx.Err() == nil {
		c.server.opt.Logger.Debug("cannot read the grain of a stage", "job", c.job, "stage", c.stage, "error", err)
	}
}

// Busy implements grains.Job.
func (c *chooser) Busy() bool { return c.busy.Load() }

// Grain implements grains.Job.
func (c *chooser) Grain(string) tasks.Grain {
	c.read(context.Background())
	return *c.grain.Load()
}

// Status implements grains.Job: it asks all workers at once.
func (c *chooser) Status() []status.Snapshot {
	ctx, cancel := context.WithTimeout(context.Background(), askFor)
	defer cancel()
	return jobs.Measured(ctx, c.server.opt.Dialer, *c.workers.Load(), c.job, c.id)
}

// SwitchGrain implements grains.Job. If this manager is deposed, the next one decides anew, by the newest plan in the log.
func (c *chooser) SwitchGrain(ctx context.Context, s runtime.Switch) error {
	w := &switching{c.chosen, s, time.Now(), make(chan error, 1)}
	c.ask(w)
	select {
	case err := <-w.said:
		return err
	case <-ctx.Done():
		c.forget(w)
		return ctx.Err()
	}
}

// wishes returns the switches of a job that have no outcome.
func (r *term) wishes(name string) (all []*switching) {
	for k, w := range r.switches {
		if k.job == name && k.id == r.states[name].ID {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *switching) int { return cmp.Compare(a.stage, b.stage) })
	return all
}

// switchGrains switches what a drive has been asked for. It reports false if ctx has ended before: then the rest is still to be switched.
func (r *term) switchGrains(ctx, life context.Context, d *drive, rescaler tasks.Rescaler, tell func(func())) bool {
	for _, w := range d.switches {
		err := r.leader.Leads(ctx) // what came before may have lasted
		switch {
		case err != nil:
		case time.Since(w.asked) > old:
			err = errOld
		default:
			err = rescaler.Switch(ctx, life, w.Switch)
		}
		if err != nil && ctx.Err() != nil {
			return false
		}
		tell(func() { r.switched(w, err) })
	}
	return true
}

// switched handles the outcome of a switch.
func (r *term) switched(w *switching, err error) {
	if r.switches[w.chosen] == w { // else its chooser has ended
		delete(r.switches, w.chosen)
		w.said <- err
	}
	st, known := r.states[w.job]
	if err != nil || !known || st.ID != w.id {
		return
	}
	s := meta.Switched{Stage: w.stage, Switched: grains.NewSwitch(time.Now().UTC(), w.Grain, w.Why)}
	r.say(w.job, fmt.Sprintf("grain %s: %s", w.stage, s.String()))
	st.Switched = append(slices.DeleteFunc(slices.Clone(st.Switched), func(old meta.Switched) bool { return old.Stage == w.stage }), s)
	r.states[w.job], r.changed[w.job] = st, true
}

// grains says how the grains of a job's stages are chosen.
func (r *term) grains(job string) (all []grains.State) {
	for k, c := range r.choosers {
		if of := c.chooser.Load(); k.job == job && of != nil {
			all = append(all, of.State())
		}
	}
	slices.SortFunc(all, func(a, b grains.State) int { return cmp.Compare(a.Stage, b.Stage) })
	return all
}
