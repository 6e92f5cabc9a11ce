package runtime

import (
	"context"
	"errors"
	"sync"

	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/lead"
	"tailrace.dev/tailrace/tasks/retention"
	"tailrace.dev/tailrace/tasks/status"
)

// Job is all tasks of a job, running in this process.
type Job struct {
	executor *Executor
	cancel   context.CancelFunc
	done     chan struct{}
	err      error
	ctx      context.Context

	// restartMu serializes the operations that stop and restart tasks: Fail, Savepoint.
	restartMu sync.Mutex
	savepoint uint64 // the number of the newest; guarded by restartMu

	mu      sync.Mutex
	tasks   [][]*Handle // by stage, task
	failed  map[*task]bool
	failure error
	// alive counts the tasks that run, and the operations that are about to start some. When it
	// reaches 0 the job has ended for good. (A WaitGroup cannot express that: adding to one whose
	// waiter is waking up panics.)
	alive int
	idle  chan struct{} // closed then

	beside sync.WaitGroup // standbys
}

// errEnded: the job has ended, so the operation is not possible.
var errEnded = errors.New("the job has ended")

// Start starts every task of the layout. The end of ctx ends the job as a crash would: tasks make
// no last commit, and a later start resumes from the newest commits.
func Start(ctx context.Context, cfg *Config) (*Job, error) {
	ctx, cancel := context.WithCancel(ctx)
	executor := NewExecutor(cfg)
	executor.lead = lead.New(cfg.Layout)
	j := &Job{executor: executor, cancel: cancel, done: make(chan struct{}), ctx: ctx, failed: map[*task]bool{}, alive: 1, idle: make(chan struct{})}
	j.tasks = make([][]*Handle, len(cfg.Layout.Stages))
	for s := range cfg.Layout.Stages {
		j.tasks[s] = make([]*Handle, cfg.Layout.Stages[s].Tasks)
	}
	j.mu.Lock()
	err := j.beginAll()
	j.mu.Unlock()
	if err != nil {
		cancel()
		return nil, err
	}
	var trims sync.WaitGroup
	if cfg.TrimBytes > 0 {
		t := retention.NewTrimmer(cfg.Log, cfg.Layout)
		t.Observer = cfg.Observer
		trims.Go(func() { t.Run(ctx, j.idle, cfg.TrimInterval, cfg.TrimBytes, cfg.Logger) })
	}
	j.leave()
	go func() {
		<-j.idle
		trims.Wait()
		cancel()
		j.beside.Wait()
		j.err = j.failure
		close(j.done)
	}()
	return j, nil
}

// stay keeps the job from ending until leave. It fails if the job has ended.
func (j *Job) stay() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.alive == 0 {
		return errEnded
	}
	j.alive++
	return nil
}

func (j *Job) leave() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.alive--; j.alive == 0 {
		close(j.idle)
	}
}

// beginAll starts an instance of every task; tasks that commit together start in the next attempt
// of the job. The caller holds j.mu.
func (j *Job) beginAll() error {
	cfg := j.executor.cfg
	of, err := cfg.Commits.Attempt(j.ctx)
	if err != nil {
		return err
	}
	var all []*task
	for s := range cfg.Layout.Stages {
		for i := range cfg.Layout.Stages[s].Tasks {
			t, err := j.executor.prepare(s, i, of)
			if err != nil {
				for _, t := range all {
					err = errors.Join(err, t.close())
				}
				return err
			}
			all = append(all, t)
		}
	}
	for _, t := range all {
		j.begin(t)
	}
	return nil
}

// begin runs a task as part of the job. The caller holds j.mu.
func (j *Job) begin(t *task) *Handle {
	r := j.executor.begin(j.ctx, t)
	j.tasks[t.stage][t.index] = r
	if j.executor.cfg.Standbys {
		j.beside.Go(func() {
			if err := j.executor.Standby(j.ctx, t.stage, t.index); err != nil {
				j.executor.cfg.Logger.Warn("no standby", "stage", t.spec.Name, "task", t.index, "error", err)
			}
		})
	}
	j.alive++
	go func() {
		defer j.leave()
		<-r.done
		j.end(t, r.err)
	}()
	return r
}

// Fail ends a task as a crash of its process would, and starts another instance, as a task manager
// would elsewhere. If that instance cannot start, the job fails.
func (j *Job) Fail(ctx context.Context, stage, index int) (*Handle, error) {
	if err := j.stay(); err != nil {
		return nil, j.executor.name(stage, index, err)
	}
	defer j.leave()
	j.restartMu.Lock()
	defer j.restartMu.Unlock()
	f := j.failOne
	for s := range j.executor.cfg.Layout.Stages {
		if j.executor.cfg.Commits.Together(s) {
			f = j.failAll
		}
	}
	r, err := f(ctx, stage, index)
	if err != nil {
		j.fail(err)
	}
	return r, err
}

func (j *Job) failOne(ctx context.Context, stage, index int) (*Handle, error) {
	j.mu.Lock()
	old := j.tasks[stage][index]
	j.failed[old.task] = true
	j.mu.Unlock()
	old.kill()
	select {
	case <-old.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t, err := j.executor.prepare(stage, index, Attempt{})
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.begin(t), nil
}

// failAll is Fail for a task whose failure takes all tasks back to the last checkpoint.
func (j *Job) failAll(ctx context.Context, stage, index int) (*Handle, error) {
	j.mu.Lock()
	var old []*Handle
	for _, tasks := range j.tasks {
		for _, r := range tasks {
			j.failed[r.task] = true
			old = append(old, r)
		}
	}
	j.mu.Unlock()
	for _, r := range old {
		r.kill()
	}
	for _, r := range old {
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.beginAll(); err != nil {
		return nil, err
	}
	return j.tasks[stage][index], nil
}

// end records the outcome of one task: the first failure stops the others.
func (j *Job) end(t *task, err error) {
	log := t.cfg.Logger.With("stage", t.spec.Name, "task", t.index, "instance", t.inst.number)
	if err == nil {
		log.Debug("task has ended", "commits", t.number)
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if errors.Is(err, context.Canceled) && j.failure != nil || errors.Is(err, ErrDrained) || j.failed[t] {
		return // it was asked to stop; a killed task may return any error
	}
	if j.failure == nil {
		j.failure = j.executor.name(t.stage, t.index, err)
	}
	if errors.Is(err, ErrFenced) {
		log.Warn("task stopped: a newer instance has taken over")
	}
	j.cancel()
}

// fail ends the job.
func (j *Job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failure == nil {
		j.failure = err
	}
	j.cancel()
}

// Done is closed when all tasks have stopped.
func (j *Job) Done() <-chan struct{} { return j.done }

// Wait waits until all tasks have stopped. It returns nil if every task has committed the end of
// its input, else the first failure.
func (j *Job) Wait() error {
	<-j.done
	return j.err
}

// Stop ends the job as a crash would, and waits for its goroutines.
func (j *Job) Stop() {
	j.cancel()
	<-j.done
}

// Status reads the status of every task, stage by stage.
func (j *Job) Status() []status.Snapshot {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []status.Snapshot
	for _, tasks := range j.tasks {
		for _, r := range tasks {
			all = append(all, r.Status())
		}
	}
	return all
}

// Backlog returns, by stream, how many bytes of items the running instances of its producers are
// ahead of its slowest consuming task.
func (j *Job) Backlog() map[string]int64 {
	b := make(map[string]int64, len(j.Layout().Streams))
	for i := range j.Layout().Streams {
		b[j.Layout().Plan.Streams[i].Name] = j.executor.lead.Ahead(i)
	}
	return b
}

// Layout returns the job's layout.
func (j *Job) Layout() *layout.Layout { return j.executor.Layout() }

// TakeOver starts one more instance of a task, which takes the task over from the present one, as a
// task manager does when a worker is silent.
func (j *Job) TakeOver(ctx context.Context, stage, index int) (*Handle, error) {
	return j.executor.Begin(ctx, stage, index, Attempt{})
}
