package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/lead"
	"tailrace.dev/tailrace/tasks/status"
)

// ErrStopped ends a task that was asked to stop: it has committed its work, and its next instance
// resumes there.
var ErrStopped = errors.New("the task was stopped")

// ErrEnded is returned by operations on a job that has ended.
var ErrEnded = errors.New("the job has ended")

// ErrDrained ends a task that has stopped for a savepoint.
var ErrDrained = errors.New("the task has stopped for a savepoint")

// ErrNoStore is in the error of a task that keeps its state in a checkpoint store, in a process
// without one.
var ErrNoStore = errors.New("there is no checkpoint store: give one (--checkpoints; Options.Checkpoints)")

// Executor runs tasks of one job in this process: all of them, or those that a task manager has
// assigned to it.
type Executor struct {
	cfg  *Config
	lead *lead.Lead // of a Job

	drain atomic.Uint64
}

// NewExecutor returns an executor without tasks. All tasks share the configuration.
func NewExecutor(cfg *Config) *Executor {
	return &Executor{cfg: cfg}
}

// Layout returns the job's layout, as of the newest plan that this process knows.
func (e *Executor) Layout() *layout.Layout { return e.cfg.Present() }

// Drain asks the sources among the executor's tasks to stop for savepoint n; the tasks behind them stop
// when they have processed all of it (ErrDrained). Drain(0) withdraws the request for tasks that
// start later. The numbers of a job rise.
func (e *Executor) Drain(n uint64) { e.drain.Store(n) }

// Config returns what the tasks share.
func (e *Executor) Config() *Config { return e.cfg }

// Measure makes the tasks that start from now on count how far they are ahead of each other. All
// tasks of the job must run in this process.
func (e *Executor) Measure() { e.lead = lead.New(e.cfg.Layout) }

// Ahead returns by how many bytes of items the producers of a stream are ahead of its consumers, if
// that is measured.
func (e *Executor) Ahead(stream int) int64 { return e.lead.Ahead(stream) }

// Handle refers to one instance of a task.
type Handle struct {
	task *task // the first instance
	done chan struct{}
	err  error
	stop chan struct{}
	once sync.Once
	warm bool
	kill context.CancelFunc // ends the task as a crash would
}

// Begin starts a new instance of a task, which takes the task over from any other instance, with
// the state of a Standby if there is one. The end of ctx ends it as a crash would. of is the
// attempt of the job, under a protocol whose tasks commit together; no task starts twice in one
// attempt. Other tasks, including the sinks of such a job, ignore it.
func (e *Executor) Begin(ctx context.Context, stage, index int, of Attempt) (*Handle, error) {
	r, err := e.Prepare(stage, index, of, false)
	if err != nil {
		return nil, err
	}
	e.Start(ctx, r)
	return r, nil
}

// Prepare is Begin without the start: Start or Discard must follow. newcomer says that a plan is about
// to make the task one of its stage, so that it waits for it.
func (e *Executor) Prepare(stage, index int, of Attempt, newcomer bool) (*Handle, error) {
	t, err := e.take(stage, index, newcomer)
	if err == nil {
		err = t.commitAs(of)
	}
	if err != nil {
		return nil, e.Name(stage, index, err)
	}
	r := &Handle{task: t, done: make(chan struct{}), stop: make(chan struct{}), warm: len(t.snaps.warm.Had) > 0}
	t.asked.stop, t.asked.drain, t.asked.enter = r.stop, &e.drain, newcomer
	return r, nil
}

// Discard releases the resources of a task that is prepared and will not start.
func (r *Handle) Discard() error { return r.task.close() }

// Start starts a task that is prepared. The end of ctx ends it as a crash would.
func (e *Executor) Start(ctx context.Context, r *Handle) {
	ctx, r.kill = context.WithCancel(ctx)
	go func() {
		defer close(r.done)
		defer r.kill()
		r.err = errGoexit // this remains if run does not return
		r.err = e.run(ctx, r.task)
	}()
}

// run runs a task's instance, and the instances that replace it after a failure of the job's code
// (passover.go).
func (e *Executor) run(ctx context.Context, t *task) (err error) {
	defer func() {
		if p := recover(); p != nil { // for the end of an instance; work recovers by itself
			err = fmt.Errorf("panic when it was closed: %v", p)
		}
	}()
	for {
		t.measure(e.lead)
		err := t.run(ctx)
		if t, err = e.again(ctx, t, err); t == nil {
			return err
		}
	}
}

// measure adds an instance to its job's lead.
func (t *task) measure(d *lead.Lead) {
	t.lead = d
	for i := range t.log.Ahead {
		t.log.Ahead[i] = lead.Of(d, t.spec.Outputs[i])
	}
}

// Done is closed when the instance has ended.
func (r *Handle) Done() <-chan struct{} { return r.done }

// Err returns, after Done, how the instance ended: nil when the task has committed the end of its
// input, ErrStopped after Stop, ErrFenced when another instance has taken over.
func (r *Handle) Err() error { return r.err }

// Stop asks the task to commit what it has done and to end. It does not wait.
func (r *Handle) Stop() { r.once.Do(func() { close(r.stop) }) }

// Kill ends the task as a crash would. It does not wait.
func (r *Handle) Kill() { r.kill() }

// Stage and Index are the task's; StageName is the stage's name.
func (r *Handle) Stage() int        { return r.task.stage }
func (r *Handle) Index() int        { return r.task.index }
func (r *Handle) StageName() string { return r.task.spec.Name }

// Newcomer reports, after Done, whether Prepare was told that a plan is about to name the task and the
// task has not entered its stage since.
func (r *Handle) Newcomer() bool { return r.task.asked.enter }

// Instance is the number of the instance, 0 until it has replaced its predecessors.
func (r *Handle) Instance() uint64 { return r.task.status.Instance.Load() }

// Restored reports whether the instance has its state.
func (r *Handle) Restored() bool { return r.task.status.Restored.Load() > 0 }

// Status reads the task's status.
func (r *Handle) Status() status.Snapshot {
	s := r.task.status.Read(r.task.spec.Name, r.task.index)
	s.Warm = r.warm
	return s
}

// Name adds to an error which task it is of. The job need not have such a task.
func (e *Executor) Name(stage, task int, err error) error {
	if stages := len(e.cfg.Layout.Plan.Stages); stage < 0 || stage >= stages {
		return fmt.Errorf("stage %d of %d, task %d: %w", stage, stages, task, err)
	}
	return fmt.Errorf("stage %q, task %d: %w", e.cfg.Layout.Plan.Stages[stage].Name, task, err)
}
