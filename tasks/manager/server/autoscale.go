package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/autoscale"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/status"
)

// The leading manager autoscales stages of jobs on workers as one process does (package autoscale): it
// asks the workers each second what their tasks measure, and puts a request into etcd, as a user
// would. The bounds are in etcd, with the job; what a policy has learned ends with the term.

// askFor bounds how long a worker may take to answer: one that is silent makes no sample.
const askFor = 500 * time.Millisecond

// scaled names a scaler: other bounds, or another job of that name, have another one.
type scaled struct {
	job, id string
	autoscale.Request
}

// scaler scales one stage of a job. It implements autoscale.Job.
type scaler struct {
	scaled
	server  *Server
	spec    *tasks.Spec
	cancel  context.CancelFunc
	busy    atomic.Bool
	workers atomic.Pointer[[]string] // the addresses of all workers
	layout  atomic.Pointer[layout.Layout]
	scaler  atomic.Pointer[autoscale.Scaler]
}

// measures reports whether what is measured in a job that runs decides something.
func measures(j *meta.Job, st *meta.State) bool {
	return j.Want != meta.Stop && st.ID != "" && slices.Contains([]meta.Phase{meta.Running, meta.Draining, meta.Saving}, st.Phase)
}

// scale starts and ends scalers, as the jobs in etcd ask for them.
func (r *term) scale(ctx context.Context, wg *sync.WaitGroup) {
	wanted, addrs := map[scaled]bool{}, r.addrs
	for name, j := range r.jobs {
		st := r.states[name]
		if !measures(&j, &st) {
			continue
		}
		for _, a := range j.Auto {
			k := scaled{name, st.ID, a}
			wanted[k] = true
			s := r.scalers[k]
			if s == nil {
				s = &scaler{scaled: k, server: r.Server, spec: j.Spec}
				r.scalers[k] = s
				var stage context.Context
				stage, s.cancel = context.WithCancel(ctx)
				wg.Go(func() { s.run(stage) })
			}
			s.busy.Store(r.drives[name] != nil || st.Phase != meta.Running)
			s.workers.Store(&addrs)
		}
	}
	for k, s := range r.scalers {
		if !wanted[k] {
			s.cancel()
			delete(r.scalers, k)
		}
	}
}

// run scales the stage until ctx ends.
func (s *scaler) run(ctx context.Context) {
	index := s.index()
	if index < 0 || !s.known(ctx) {
		return // jobs.Autoscale has refused it
	}
	scaler := autoscale.New(s, s.server.opt.Log, s.server.opt.Logger.With("job", s.job), index, s.Request)
	s.scaler.Store(scaler)
	scaler.Run(ctx)
}

// index returns the stage's in the plan, -1: the job has no such stage.
func (s *scaler) index() int {
	for i := range s.spec.Plan.Stages {
		if s.spec.Plan.Stages[i].Name == s.Stage {
			return i
		}
	}
	return -1
}

// known reads the layout until there is one. It reports false if ctx ends before.
func (s *scaler) known(ctx context.Context) bool {
	for s.read(ctx); s.layout.Load() == nil; s.read(ctx) {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(200 * time.Millisecond):
		}
	}
	return true
}

// read reads the layout as of the newest plan; if the log does not answer, the one before stays.
func (s *scaler) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	if l, err := s.spec.Present(ctx, s.server.opt.Log, s.id); err == nil {
		s.layout.Store(l)
	} else if ctx.Err() == nil {
		s.server.opt.Logger.Debug("autoscale: cannot read the plan of a job", "job", s.job, "error", err)
	}
}

// Layout implements autoscale.Job.
func (s *scaler) Layout() *layout.Layout { return s.layout.Load() }

// Busy implements autoscale.Job.
func (s *scaler) Busy() bool { return s.busy.Load() }

// Status implements autoscale.Job: it asks all workers at once.
func (s *scaler) Status() []status.Snapshot {
	ctx, cancel := context.WithTimeout(context.Background(), askFor)
	defer cancel()
	s.read(ctx)
	return jobs.Loads(ctx, s.server.opt.Dialer, *s.workers.Load(), s.job, s.id)
}

// Rescale implements autoscale.Job. If this manager is deposed, the next one carries out the request.
func (s *scaler) Rescale(ctx context.Context, q rescale.Request) (*rescale.Result, error) {
	number, err := jobs.Rescale(ctx, s.server.opt.Store, s.job, q)
	if err != nil {
		return nil, err
	}
	done, err := jobs.AwaitRescale(ctx, s.server.opt.Store, s.job, number)
	if err != nil {
		return nil, err
	}
	s.read(ctx)
	return &done[0].Rescaled, nil
}

// autoscaled says how the stages of a job are scaled, a sentence for each.
func (r *term) autoscaled(job string) (all []string) {
	for k, s := range r.scalers {
		if k.job != job {
			continue
		}
		text := fmt.Sprintf("autoscale %s %d..%d: ", k.Stage, k.Min, k.Max)
		if of := s.scaler.Load(); of == nil {
			text += "the job's plan has not been read yet"
		} else {
			st := of.State()
			text += fmt.Sprintf("%d tasks, %s", st.Tasks, st.Why)
			if n := len(st.Rescales); n > 0 {
				last := &st.Rescales[n-1]
				text += fmt.Sprintf("; %d → %d at %s: %s", last.From, last.To, last.At.Format(time.TimeOnly), last.Why)
				if last.Error != "" {
					text += ": " + last.Error
				}
			}
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}
