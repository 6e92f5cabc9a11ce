package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/joblog"
	"tailrace.dev/tailrace/tasks/manager"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/observe"
)

// Options are the settings of Start.
type Options struct {
	// Log and Store are the caller's, to be closed after the Server.
	Log    sharedlog.Log
	Store  *meta.Store
	Dialer transport.Dialer
	// Me is how other processes reach this manager when it leads. Cluster is the record that it
	// writes if it is the cluster's first manager.
	Me      meta.Manager
	Cluster meta.Cluster
	// Checkpoints is where the workers' snapshots are; nil if this process does not know. The
	// manager removes the snapshots of deleted jobs.
	Checkpoints checkpoint.Store
	// TrimInterval is how often the log is trimmed, 0: never. Streams that no stage reads are kept
	// for Retention (0: for ever).
	TrimInterval, Retention time.Duration
	// Settings of the core; zero: manager.Default.
	Settings manager.Settings
	// Observer is told the steps of rescales, which the leading manager drives; nil: it is not.
	Observer observe.Observer
	Logger   *slog.Logger
}

// Server is a running task manager.
type Server struct {
	opt    Options
	cancel context.CancelFunc
	wg     sync.WaitGroup
	done   chan struct{}
	asked  chan chan<- manager.Status // goroutines that ask the loop for its status

	mu      sync.Mutex
	term    <-chan struct{} // closed when the present term of leadership ends; nil: another manager leads
	entries joblog.Ring
}

// Start starts a manager; it leads when it is elected.
func Start(o Options) *Server {
	if o.Settings == (manager.Settings{}) {
		o.Settings = manager.Default
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{opt: o, cancel: cancel, done: make(chan struct{}), asked: make(chan chan<- manager.Status)}
	s.wg.Go(func() {
		defer close(s.done)
		s.run(ctx)
	})
	return s
}

// Register adds the server's streams.
func (s *Server) Register(t transport.Handlers) {
	t.Handle("manager/status", transport.AnswerJSON(func() any { return s.Status() }))
	t.Handle("manager/words", transport.AnswerJSON(func() any { return s.Logs() }))
}

// Done is closed when the server has ended; Err returns why. It never fails by itself.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err implements the interface of a host's role.
func (s *Server) Err() error { return nil }

// Close resigns and ends.
func (s *Server) Close() error {
	s.cancel()
	s.wg.Wait()
	return nil
}

// Leads reports whether this manager leads.
func (s *Server) Leads() bool {
	return s.over() != nil
}

// Status returns the core's status; it is empty if another manager leads. It waits while the loop
// writes to etcd, until that is done or the term of leadership ends.
func (s *Server) Status() manager.Status {
	over := s.over()
	if over == nil {
		return manager.Status{}
	}
	said := make(chan manager.Status, 1)
	select {
	case s.asked <- said:
		return <-said
	case <-over:
		return manager.Status{}
	}
}

// Logs returns the recent job log entries, oldest first.
func (s *Server) Logs() []joblog.Entry { return s.entries.All() }

func (s *Server) run(ctx context.Context) {
	for ctx.Err() == nil {
		l, err := s.opt.Store.Campaign(ctx, s.opt.Me)
		if err == nil {
			s.opt.Logger.Info("manager leads", "manager", s.opt.Me.Name)
			err = s.lead(ctx, l)
			s.begin(nil)
			l.Resign()
		}
		if ctx.Err() != nil {
			return
		}
		s.opt.Logger.Warn("manager no longer leads", "manager", s.opt.Me.Name, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// begin records that a term of leadership has started, which lasts until over is closed.
func (s *Server) begin(over <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term = over
}

func (s *Server) over() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.term
}

// term is one term of leadership. Only its loop touches the core.
type term struct {
	*Server
	life    <-chan struct{} // closed when it is over
	leader  *meta.Leader
	core    *manager.Core
	jobs    map[string]meta.Job
	deleted map[string]meta.Deleted // of whose records some may be left, by id
	states  map[string]meta.State
	pending map[string]*pendingSavepoint // savepoints in progress, by job
	copies  map[string]*copying          // of jobs that run, for savepoints
	drives  map[string]*drive            // rescales in progress, by job
	scalers map[scaled]*scaler
	// balancers are those of jobs' stages.
	balancers map[balanced]*balancer
	// choosers are those of the grains of jobs' stages, and switches what they ask for that has no outcome.
	choosers map[chosen]*chooser
	switches map[chosen]*switching
	addrs    []string                      // of the workers
	changed  map[string]bool               // jobs whose state is to be written
	streams  map[string]context.CancelFunc // by address
	input    chan func()                   // inputs of the core, run by the loop
}

// lead is the loop. It returns why the term of leadership has ended.
func (s *Server) lead(ctx context.Context, l *meta.Leader) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if _, err := l.Begin(ctx, s.opt.Cluster); err != nil {
		return err
	}
	r := &term{
		Server: s, life: ctx.Done(), leader: l, core: manager.New(s.opt.Settings, now()), states: map[string]meta.State{},
		streams: map[string]context.CancelFunc{}, pending: map[string]*pendingSavepoint{}, copies: map[string]*copying{}, drives: map[string]*drive{}, scalers: map[scaled]*scaler{}, balancers: map[balanced]*balancer{},
		choosers: map[chosen]*chooser{}, switches: map[chosen]*switching{}, changed: map[string]bool{}, input: make(chan func(), 64),
	}
	first, err := s.opt.Store.Look(ctx)
	if err != nil {
		return err
	}
	r.load(first)
	tell := func(f func()) {
		select {
		case r.input <- f:
		case <-ctx.Done():
		}
	}
	for name, st := range r.states {
		if st.ID != "" {
			wg.Go(func() { r.learn(ctx, name, st.ID, tell) })
		}
	}
	// Views are not queued with other inputs: the core decides after each view, or else it would
	// not notice that a job was deleted and submitted again.
	views := make(chan meta.View)
	wg.Go(func() {
		last := first
		s.opt.Store.Follow(ctx, func(v meta.View) {
			for _, v := range between(last, v) {
				select {
				case views <- v:
				case <-ctx.Done():
				}
			}
			last = v
		}, nil)
	})
	if s.opt.TrimInterval > 0 {
		wg.Go(func() { r.trim(ctx, tell) })
	}
	s.begin(ctx.Done())
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.Done():
			return errors.New("the lease was lost")
		case said := <-s.asked:
			said <- r.status()
			continue
		case v := <-views:
			r.view(v)
			r.tidy(ctx, v, &wg)
		case f := <-r.input:
			f()
			for range len(r.input) { // handle all waiting inputs, then decide once
				(<-r.input)()
			}
		case <-tick.C:
		}
		if err := r.act(ctx, tell, &wg); err != nil {
			return err
		}
		r.abandon()
		r.refresh()
		r.scale(ctx, &wg)
		r.balance(ctx, &wg)
		r.choose(ctx, tell, &wg)
		r.listen(ctx, tell, &wg)
	}
}

func now() int64 { return time.Since(began).Milliseconds() }

var began = time.Now()

func (r *term) load(v meta.View) {
	phases, ids := map[string]manager.Phase{}, map[string]string{}
	for name, st := range v.States {
		phases[name], ids[name] = st.Phase, st.ID
		r.states[name] = st
	}
	var placements []manager.Placement
	for _, a := range v.Tasks {
		placements = append(placements, manager.Placement{
			Task: a.Key(), Worker: a.Worker, Nonce: a.Nonce, Addr: a.Addr, Attempt: a.Attempt, Ended: a.Ended, Newcomer: a.Newcomer, Left: a.Left,
		})
	}
	r.core.Load(phases, ids, placements)
	r.view(v)
}

// between returns the view v, and before it one without the jobs that were deleted, and submitted again, since the view last: etcd may
// show both at once.
func between(last, v meta.View) []meta.View {
	without := v
	without.Jobs = maps.Clone(v.Jobs)
	maps.DeleteFunc(without.Jobs, func(name string, j meta.Job) bool {
		was, known := last.Jobs[name]
		return known && !was.Submitted.Equal(j.Submitted)
	})
	if len(without.Jobs) == len(v.Jobs) {
		return []meta.View{v}
	}
	return []meta.View{without, v}
}

// forget removes what this manager knows of jobs that were deleted: another job of the name has no outcomes yet, and its key groups
// are not those that a drive moves.
func (r *term) forget() {
	for name := range r.states {
		if _, known := r.jobs[name]; known {
			continue
		}
		delete(r.states, name)
		if d := r.drives[name]; d != nil {
			d.cancel()
			delete(r.drives, name)
		}
	}
}

func (r *term) view(v meta.View) {
	r.jobs, r.deleted = v.Jobs, v.Deleted
	r.forget()
	var jobs []manager.Job
	for name, j := range v.Jobs {
		st := r.states[name]
		j.CloseSavepoint(&st) // in etcd, too, when tidy has done it
		job, err := describe(j)
		if err != nil {
			job = manager.Job{Name: name} // Register will report what is wrong
		}
		for _, a := range r.asked(name) {
			job.Rescale = max(job.Rescale, a.Number)
		}
		for _, a := range r.tables(name) {
			job.Rescale = max(job.Rescale, a.Number)
		}
		jobs = append(jobs, job)
	}
	var workers []manager.Worker
	r.addrs = nil
	for _, w := range v.Workers {
		r.addrs = append(r.addrs, w.Addr)
		workers = append(workers, manager.Worker{
			Name: w.Name, Nonce: w.Nonce, Addr: w.Addr, Format: w.Format, Program: w.Program,
			Stages: w.Stages, Jobs: w.Jobs, Labels: w.Labels, Capacity: w.Tasks,
		})
	}
	r.core.View(now(), jobs, workers)
}

// describe returns a job as the core sees it.
func describe(j meta.Job) (manager.Job, error) {
	m := manager.Job{
		Name: j.Spec.Name, Program: j.Spec.Program, Format: j.Spec.Format, Labels: j.Spec.Labels,
		MaxRestarts: cmp.Or(j.Spec.MaxRestarts, tasks.DefaultMaxRestarts), Stop: j.Want == meta.Stop,
	}
	if j.Savepoint != nil {
		m.Savepoint = j.Savepoint.Number
	}
	n, err := j.Spec.Tasks()
	if err != nil {
		return m, err
	}
	for i, st := range j.Spec.Plan.Stages {
		m.Stages = append(m.Stages, manager.Stage{Name: st.Name, Tasks: n[i], Together: j.Spec.Together(i)})
	}
	return m, nil
}

// act carries out the core's actions. A failed write ends the term of leadership.
func (r *term) act(ctx context.Context, tell func(func()), wg *sync.WaitGroup) error {
	var changes []meta.Change
	state := func(name string) {
		st := r.states[name]
		i := slices.IndexFunc(changes, func(c meta.Change) bool { return c.State != nil && c.Job == name })
		if i < 0 {
			i, changes = len(changes), append(changes, meta.Change{Job: name})
		}
		changes[i].State = &st // a transaction may write a key only once
	}
	for _, a := range r.core.Tick(now()) {
		switch a.Kind {
		case manager.Register:
			j := r.jobs[a.Job] // read it here, because the loop owns the map
			wg.Go(func() { r.register(ctx, a.Job, j, tell) })
		case manager.Copy:
			r.copyState(ctx, r.jobs[a.Job], r.states[a.Job].ID, tell, wg)
		case manager.Save:
			j, id, m := r.jobs[a.Job], r.states[a.Job].ID, r.pending[a.Job]
			delete(r.pending, a.Job)
			wg.Go(func() { r.save(ctx, j, id, m, tell) })
		case manager.Move:
			r.move(ctx, a.Job, tell, wg)
		case manager.Hold:
			if d := r.drives[a.Job]; d != nil {
				d.cancel()
			}
		case manager.Place:
			p := a.Placement
			changes = append(changes, meta.Change{Assign: &meta.Assignment{
				Job: p.Task.Job, Stage: p.Task.Stage, Task: p.Task.Task, Worker: p.Worker, Nonce: p.Nonce, Addr: p.Addr, Attempt: p.Attempt, Ended: p.Ended,
				Newcomer: p.Newcomer, Left: p.Left,
			}})
			if p.Nonce != "" {
				r.say(p.Task.Job, fmt.Sprintf("task %v: given to worker %s, attempt %d", p.Task, p.Worker, p.Attempt))
			}
		case manager.SetPhase:
			st := r.states[a.Job]
			st.Phase, st.Detail, st.Since = a.Phase, a.Detail, time.Now().UTC()
			r.states[a.Job] = st
			state(a.Job)
			r.say(a.Job, fmt.Sprintf("job %s is %s %s", a.Job, a.Phase, a.Detail))
		case manager.Note:
			r.say(a.Job, a.Detail)
		}
	}
	for name := range r.changed {
		if _, known := r.jobs[name]; known {
			state(name)
		}
		delete(r.changed, name)
	}
	if len(changes) == 0 {
		return nil
	}
	return r.leader.Write(ctx, changes)
}

func (r *term) say(job, text string) {
	r.opt.Logger.Info(text)
	r.entries.Add(joblog.Entry{At: time.Now().UTC(), Job: job, Who: r.opt.Me.Name, Text: text})
}
