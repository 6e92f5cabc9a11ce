package worker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/joblog"
	"tailrace.dev/tailrace/tasks/manager"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/runtime"
)

// executor runs the tasks of one job in this process.
type executor struct {
	tasks atomic.Pointer[tasks.Executor]
	drain atomic.Uint64 // the savepoint for which sources are to stop
	mu    sync.Mutex    // for join
	// life ends with the last task of the job here; end ends it.
	life context.Context
	end  context.CancelFunc
}

// drainFor sets the savepoint for which the job's sources are to stop, 0: none.
func (c *executor) drainFor(n uint64) {
	c.drain.Store(n)
	if joined := c.tasks.Load(); joined != nil {
		joined.Drain(n)
	}
}

// assigned is one task that this worker was assigned. worker.mu guards it.
type assigned struct {
	id      string // the job's
	report  manager.TaskReport
	running *tasks.Handle
	stopped bool // it is to end
	cancel  context.CancelFunc
	done    chan struct{}
}

// stop asks the task to commit and end, whatever its state.
func (a *assigned) stop() {
	a.stopped = true
	if a.running != nil {
		a.running.Stop()
		return
	}
	a.cancel()
}

func (a *assigned) kill() { a.cancel() }

// assign starts and stops tasks as the assignments in etcd require.
func (w *worker) assign(ctx context.Context, v meta.View) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.leaving:
		return
	case v.Cluster.ID == "" && len(w.tasks) > 0, w.cluster != "" && v.Cluster.ID != w.cluster:
		w.tell("", "etcd no longer has this cluster's record (was it emptied?): running tasks continue, no task is started")
		return
	case v.Cluster.ID != "":
		w.cluster = v.Cluster.ID
	}
	wanted := map[meta.TaskKey]bool{}
	for key, as := range v.Tasks {
		st := v.States[key.Job]
		job, known := v.Jobs[key.Job]
		if as.Nonce != w.me.Nonce || as.Ended || as.Left || !known || job.Want != meta.Run || st.ID == "" || st.Phase != meta.Running && st.Phase != meta.Draining {
			continue
		}
		w.executorOf(ctx, st.ID).drainFor(draining(job, st))
		wanted[key] = true
		have := w.tasks[key]
		if have != nil && have.id == st.ID && have.report.Attempt >= as.Attempt {
			continue
		}
		w.begin(ctx, key, w.attempt(as.Attempt, st.ID), job.Spec, st.ID, as.Newcomer)
	}
	w.standBy(ctx, w.copies(v, wanted))
	for key, a := range w.tasks {
		switch {
		case wanted[key]:
		case a.report.State != manager.TaskRunning:
			if v.Tasks[key].Nonce != w.me.Nonce || v.Tasks[key].Ended || v.Tasks[key].Left || v.States[key.Job].ID != a.id {
				delete(w.tasks, key) // the manager knows how it ended
				w.dismiss(a.id)
			}
		case !a.stopped:
			w.tell(key.Job, "task %s/%d/%d: %s; stopping", key.Job, key.Stage, key.Task, withdrawn(v.Tasks[key]))
			a.stop()
			w.run.Go(func() { endOf(a) })
		}
	}
}

// withdrawn says why a task is not this worker's any more.
func withdrawn(as meta.Assignment) string {
	if as.Left {
		return "no plan has named it"
	}
	return "assigned to another worker"
}

// draining returns the number of the savepoint for which a job's sources are to stop.
func draining(job meta.Job, st meta.State) uint64 {
	if st.Phase != meta.Draining || job.Savepoint == nil {
		return 0
	}
	return job.Savepoint.Number
}

// dismiss removes a job of which this worker has no tasks any more.
func (w *worker) dismiss(id string) {
	for _, a := range w.tasks {
		if a.id == id {
			return
		}
	}
	for _, s := range w.standby {
		if s.id == id {
			return
		}
	}
	if c := w.executors[id]; c != nil {
		c.end()
		delete(w.executors, id)
	}
}

// endOf kills a task that does not stop soon by itself: it cannot commit, because the log is
// unavailable or another instance has replaced it.
func endOf(a *assigned) {
	end := time.NewTimer(2 * time.Second)
	defer end.Stop()
	select {
	case <-a.done:
	case <-end.C:
		a.kill()
	}
}

// attempt maps a manager's attempt number to an attempt of the job with this id. All workers that
// follow the managers of one etcd compute the same attempt. Attempts that are numbered
// independently, by a process that runs the job alone or by managers of an etcd that was lost,
// differ. The caller holds w.mu.
func (w *worker) attempt(number int, id string) tasks.Attempt {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s", w.cluster, id)
	return tasks.Attempt{Number: uint64(number), Nonce: h.Sum64()}
}

// begin starts an instance of a task; newcomer: it waits for the plan that names it. The caller holds
// w.mu.
func (w *worker) begin(ctx context.Context, key meta.TaskKey, of tasks.Attempt, spec *tasks.Spec, id string, newcomer bool) {
	c := w.executorOf(ctx, id)
	ctx, cancel := context.WithCancel(ctx)
	before := w.tasks[key]
	a := &assigned{
		id: id, cancel: cancel, done: make(chan struct{}),
		report: manager.TaskReport{Job: key.Job, ID: id, Stage: key.Stage, Task: key.Task, Attempt: int(of.Number), State: manager.TaskRunning},
	}
	w.tasks[key] = a
	w.say()
	w.run.Go(func() {
		defer close(a.done)
		defer cancel()
		if before != nil {
			before.kill()
			<-before.done
		}
		err := w.runTask(ctx, a, c, key, of, spec, id, newcomer)
		w.ended(a, err)
	})
}

// executorOf returns the executor of a job. The caller holds w.mu.
func (w *worker) executorOf(ctx context.Context, id string) *executor {
	c := w.executors[id]
	if c == nil {
		c = new(executor)
		c.life, c.end = context.WithCancel(ctx)
		w.executors[id] = c
	}
	return c
}

// join prepares the executor to run tasks, unless that was done already. If one caller fails, the next
// one tries again: the first one may have been stopped.
func (w *worker) join(ctx context.Context, c *executor, spec *tasks.Spec, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tasks.Load() != nil {
		return nil
	}
	plan, err := w.build(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", errBuild, err)
	}
	joined, err := tasks.Join(ctx, w.log, spec, id, plan, tasks.Options{Logger: w.opt.Logger, TrimBytes: -1, Checkpoints: w.checkpoints, Observer: w.observe, Peers: w.peers})
	if err != nil {
		return err
	}
	c.tasks.Store(joined)
	if h := joined.Config().Handover; h != nil {
		w.run.Go(func() { w.follow(c.life, spec.Name, h) })
	}
	for n, told := c.drain.Load(), false; !told; { // drainFor may be setting another one
		joined.Drain(n)
		now := c.drain.Load()
		n, told = now, now == n
	}
	return nil
}

// follow tells a job's tasks in this process of new plans, until ctx ends.
func (w *worker) follow(ctx context.Context, job string, h runtime.Handover) {
	for ctx.Err() == nil {
		err := h.Follow(ctx)
		if ctx.Err() != nil {
			return
		}
		w.opt.Logger.Warn("cannot follow the plans of a job; trying again", "job", job, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// observe is told the steps of tasks: the manager waits for newcomers.
func (w *worker) observe(e observe.Event) {
	if w.opt.Observer != nil {
		w.opt.Observer(e)
	}
	if e.Step == observe.RescaleSilent {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.say()
	}
}

func (w *worker) runTask(ctx context.Context, a *assigned, c *executor, key meta.TaskKey, of tasks.Attempt, spec *tasks.Spec, id string, newcomer bool) error {
	if err := w.join(ctx, c, spec, id); err != nil {
		return err
	}
	r, err := c.tasks.Load().Prepare(key.Stage, key.Task, of, newcomer)
	if err != nil {
		return err
	}
	c.tasks.Load().Start(ctx, r)
	w.mu.Lock()
	a.running = r
	if a.stopped {
		r.Stop()
	}
	if newcomer {
		w.say() // it may wait for its plan already
	}
	w.mu.Unlock()
	warm := ""
	if r.Status().Warm {
		warm = ", with a warm copy"
	}
	w.tell(key.Job, "task %s/%d/%d: started, attempt %d%s", key.Job, key.Stage, key.Task, a.report.Attempt, warm)
	<-r.Done()
	return r.Err()
}

// build is Options.Build; a panic is returned as an error.
func (w *worker) build(spec *tasks.Spec) (plan *exec.Plan, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return w.opt.Build(spec)
}

// errBuild: the program could not make the job's plan.
var errBuild = errors.New("the plan cannot be built")

// ended records how a task ended.
func (w *worker) ended(a *assigned, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &a.report
	if err != nil {
		r.Error = err.Error()
	}
	switch {
	case err == nil:
		r.State = manager.TaskEnded
	case errors.Is(err, tasks.ErrFenced):
		r.State = manager.TaskFenced
	case errors.Is(err, tasks.ErrDrained):
		r.State, r.Error = manager.TaskDrained, ""
	case errors.Is(err, tasks.ErrStopped), a.stopped && errors.Is(err, context.Canceled):
		r.State, r.Error = manager.TaskStopped, ""
	case errors.Is(err, tasks.ErrGraph), errors.Is(err, errBuild), errors.Is(err, tasks.ErrNoStore), errors.Is(err, exec.ErrStays):
		r.State = manager.TaskRefused
	default:
		var user *tasks.UserError
		r.State, r.User = manager.TaskFailed, errors.As(err, &user)
	}
	w.tell(r.Job, "task %s/%d/%d: %s, attempt %d %s", r.Job, r.Stage, r.Task, r.State, r.Attempt, r.Error)
	w.say()
}

// tell logs a message and adds it to the job log.
func (w *worker) tell(job, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.opt.Logger.Info(text, "worker", w.me.Name)
	w.entries.Add(joblog.Entry{At: time.Now().UTC(), Job: job, Who: w.me.Name, Text: text})
}
