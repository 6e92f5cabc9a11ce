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

	mu   sync.Mutex
	warm map[taskKey]*standby
}

// NewExecutor returns an executor without tasks. All tasks share the configuration.
func NewExecutor(cfg *Config) *Executor {
	return &Executor{cfg: cfg, warm: map[taskKey]*standby{}}
}

// Layout returns the job's layout.
func (e *Executor) Layout() *layout.Layout { return e.cfg.Layout }

// Drain asks the sources among the executor's tasks to stop for savepoint n; the tasks behind them stop
// when they have processed all of it (ErrDrained). Drain(0) withdraws the request for tasks that
// start later. The numbers of a job rise.
func (e *Executor) Drain(n uint64) { e.drain.Store(n) }

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
	t, err := e.prepare(stage, index, of)
	if err != nil {
		return nil, err
	}
	return e.begin(ctx, t), nil
}

// prepare returns an instance of a task that can start in an attempt.
func (e *Executor) prepare(stage, index int, of Attempt) (*task, error) {
	t, err := e.take(stage, index)
	if err == nil {
		err = t.commitAs(of)
	}
	if err != nil {
		return nil, e.name(stage, index, err)
	}
	return t, nil
}

func (e *Executor) begin(ctx context.Context, t *task) *Handle {
	ctx, kill := context.WithCancel(ctx)
	r := &Handle{task: t, done: make(chan struct{}), stop: make(chan struct{}), kill: kill, warm: t.snaps.warm > 0}
	t.asked.stop, t.asked.drain = r.stop, &e.drain
	go func() {
		defer close(r.done)
		defer kill()
		r.err = errGoexit // this remains if run does not return
		r.err = e.run(ctx, t)
	}()
	return r
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
	for i := range t.log.ahead {
		t.log.ahead[i] = lead.Of(d, t.spec.Outputs[i])
	}
}

// Done is closed when the instance has ended.
func (r *Handle) Done() <-chan struct{} { return r.done }

// Err returns, after Done, how the instance ended: nil when the task has committed the end of its
// input, ErrStopped after Stop, ErrFenced when another instance has taken over.
func (r *Handle) Err() error { return r.err }

// Stop asks the task to commit what it has done and to end. It does not wait.
func (r *Handle) Stop() { r.once.Do(func() { close(r.stop) }) }

// Status reads the task's status.
func (r *Handle) Status() status.Snapshot {
	s := r.task.status.Read(r.task.spec.Name, r.task.index)
	s.Warm = r.warm
	return s
}

func (e *Executor) name(stage, task int, err error) error {
	return fmt.Errorf("stage %q, task %d: %w", e.cfg.Layout.Plan.Stages[stage].Name, task, err)
}
