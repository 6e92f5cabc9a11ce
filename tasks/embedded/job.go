package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"tailrace.dev/tailrace/tasks/autoscale"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/grains"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/retention"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/status"
)

// Job is all tasks of a job, running in this process.
type Job struct {
	executor *runtime.Executor
	cancel   context.CancelFunc
	done     chan struct{}
	err      error
	ctx      context.Context

	// plans has a token while a rescale, or a savepoint, is made: there is one at a time.
	plans chan struct{}
	// restartMu serializes the operations that stop and restart tasks: Fail, Savepoint.
	restartMu turn
	savepoint uint64 // the number of the newest; guarded by restartMu

	mu      sync.Mutex
	tasks   [][]*runtime.Handle // by stage, task
	failed  map[*runtime.Handle]bool
	failure error
	// alive counts the tasks that run, and the operations that are about to start some. When it
	// reaches 0 the job has ended for good. (A WaitGroup cannot express that: adding to one whose
	// waiter is waking up panics.)
	alive int
	idle  chan struct{} // closed then

	beside  sync.WaitGroup // standbys, scalers, balancers, choosers
	scalers map[string]*scaler
	// balancers are those of stages, by name.
	balancers map[string]*balancer
	grains    map[string]envelope.Grain // of stages that choose it, as of the newest plan
	choosers  []*grains.Chooser         // does not change
}

// errRetired: the task was started for a plan that was not made.
var errRetired = errors.New("the task is not one of its stage")

// Start starts every task of the layout. The end of ctx ends the job as a crash would: tasks make
// no last commit, and a later start resumes from the newest commits.
func Start(ctx context.Context, cfg *runtime.Config) (*Job, error) {
	ctx, cancel := context.WithCancel(ctx)
	executor := runtime.NewExecutor(cfg)
	executor.Measure()
	j := &Job{restartMu: make(turn, 1), executor: executor, cancel: cancel, done: make(chan struct{}), ctx: ctx, failed: map[*runtime.Handle]bool{}, alive: 1, idle: make(chan struct{}), plans: make(chan struct{}, 1)}
	j.tasks, j.scalers, j.balancers = make([][]*runtime.Handle, len(cfg.Layout.Stages)), map[string]*scaler{}, map[string]*balancer{}
	auto, err := autoscale.Load(ctx, cfg.Log, cfg.Layout.Job)
	if err != nil {
		cancel()
		return nil, err
	}
	for s := range cfg.Layout.Stages {
		j.tasks[s] = make([]*runtime.Handle, members(cfg, s))
	}
	j.mu.Lock()
	err = j.beginAll()
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
	if cfg.Plan != nil && len(cfg.Plan.Goal) > 0 {
		j.beside.Go(j.resumeRescale)
	}
	j.resumeAutoscale(auto)
	j.chooseGrains()
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

// stay keeps the job from ending until leave. It returns runtime.ErrEnded if the job has ended.
func (j *Job) stay() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.alive == 0 {
		return runtime.ErrEnded
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
	cfg := j.executor.Config()
	of, err := cfg.Commits.Attempt(j.ctx)
	if err != nil {
		return err
	}
	var all []*runtime.Handle
	for s := range cfg.Layout.Stages {
		for i := range members(cfg, s) {
			r, err := j.executor.Prepare(s, i, of, false)
			if err != nil {
				for _, r := range all {
					err = errors.Join(err, r.Discard())
				}
				return err
			}
			all = append(all, r)
		}
	}
	for _, r := range all {
		j.begin(r)
	}
	return nil
}

// begin runs a prepared task as part of the job. The caller holds j.mu.
func (j *Job) begin(r *runtime.Handle) {
	stage, index := r.Stage(), r.Index()
	j.executor.Start(j.ctx, r)
	for len(j.tasks[stage]) <= index {
		j.tasks[stage] = append(j.tasks[stage], nil)
	}
	j.tasks[stage][index] = r
	if j.executor.Config().Standbys {
		j.beside.Go(func() {
			if err := j.executor.Standby(j.ctx, stage, index); err != nil {
				j.executor.Config().Logger.Warn("no standby", "stage", r.StageName(), "task", index, "error", err)
			}
		})
	}
	j.alive++
	go func() {
		defer j.leave()
		<-r.Done()
		j.end(r)
	}()
}

// Fail ends a task as a crash of its process would, and starts another instance, as a task manager
// would elsewhere. If that instance cannot start, the job fails. A task that the job does not have is an
// error that says which it has. After the job has ended, the error is runtime.ErrEnded. If ctx ends before the task does, Fail returns, and
// the other instance starts later.
func (j *Job) Fail(ctx context.Context, stage, index int) (*runtime.Handle, error) {
	if err := j.stay(); err != nil {
		return nil, j.executor.Name(stage, index, err)
	}
	type failed struct {
		r   *runtime.Handle
		err error
	}
	did := make(chan failed, 1)
	go func() {
		defer j.leave()
		r, err := j.failNow(ctx, stage, index)
		did <- failed{r, err}
	}()
	select {
	case f := <-did:
		return f.r, f.err
	case <-ctx.Done():
		return nil, j.executor.Name(stage, index, ctx.Err())
	}
}

// failNow is Fail without an end of its wait: a task that was killed needs another instance. If ctx has ended before, it does nothing.
func (j *Job) failNow(ctx context.Context, stage, index int) (*runtime.Handle, error) {
	j.restartMu.Lock()
	defer j.restartMu.Unlock()
	if err := j.has(stage, index); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, j.executor.Name(stage, index, err)
	}
	f := j.failOne
	for s := range j.executor.Config().Layout.Stages {
		if j.executor.Config().Commits.Together(s) {
			f = j.failAll
		}
	}
	r, err := f(stage, index)
	if err != nil {
		j.fail(err)
	}
	return r, err
}

// has returns nil if the job has a task, and otherwise what it has instead. The job may have started the
// task for a plan that was not made.
func (j *Job) has(stage, index int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if stage < 0 || stage >= len(j.tasks) {
		var names []string
		for i, st := range j.executor.Config().Layout.Plan.Stages {
			names = append(names, fmt.Sprintf("%d %q", i, st.Name))
		}
		return fmt.Errorf("there is no stage %d: the stages are %s", stage, strings.Join(names, ", "))
	}
	if index < 0 || index >= len(j.tasks[stage]) {
		return j.executor.Name(stage, index, fmt.Errorf("there is no such task: the stage has had %d, from 0", len(j.tasks[stage])))
	}
	if j.tasks[stage][index] == nil {
		return j.executor.Name(stage, index, errRetired)
	}
	return nil
}

func (j *Job) failOne(stage, index int) (*runtime.Handle, error) {
	j.mu.Lock()
	old := j.tasks[stage][index]
	j.failed[old] = true
	j.mu.Unlock()
	old.Kill()
	<-old.Done()
	r, err := j.executor.Prepare(stage, index, runtime.Attempt{}, old.Newcomer())
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.begin(r)
	return r, nil
}

// failAll is Fail for a task whose failure takes all tasks back to the last checkpoint.
func (j *Job) failAll(stage, index int) (*runtime.Handle, error) {
	j.mu.Lock()
	var old []*runtime.Handle
	for _, tasks := range j.tasks {
		for _, r := range tasks {
			j.failed[r] = true
			old = append(old, r)
		}
	}
	j.mu.Unlock()
	for _, r := range old {
		r.Kill()
	}
	for _, r := range old {
		<-r.Done()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.beginAll(); err != nil {
		return nil, err
	}
	return j.tasks[stage][index], nil
}

// end records the outcome of one task: the first failure stops the others.
func (j *Job) end(r *runtime.Handle) {
	cfg, err := j.executor.Config(), r.Err()
	log := cfg.Logger.With("stage", r.StageName(), "task", r.Index(), "instance", r.Instance())
	if err == nil {
		log.Debug("task has ended")
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if errors.Is(err, context.Canceled) && j.failure != nil || errors.Is(err, runtime.ErrDrained) || j.failed[r] {
		return // it was asked to stop; a killed task may return any error
	}
	if j.failure == nil {
		j.failure = j.executor.Name(r.Stage(), r.Index(), err)
	}
	if errors.Is(err, runtime.ErrFenced) {
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

// Status reads the status of every task, stage by stage. Tasks that have left their stages are left
// out.
func (j *Job) Status() []status.Snapshot {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []status.Snapshot
	for s, tasks := range j.tasks {
		for i, r := range tasks {
			if r != nil && (i < j.Layout().Stages[s].Tasks || !ended(r)) {
				all = append(all, r.Status())
			}
		}
	}
	return all
}

// Backlog returns, by stream, how many bytes of items the running instances of its producers are
// ahead of its slowest consuming task.
func (j *Job) Backlog() map[string]int64 {
	b := make(map[string]int64, len(j.Layout().Streams))
	for i := range j.Layout().Streams {
		b[j.Layout().Plan.Streams[i].Name] = j.executor.Ahead(i)
	}
	return b
}

// Layout returns the job's layout, as of the newest plan.
func (j *Job) Layout() *layout.Layout { return j.executor.Layout() }

// TakeOver starts one more instance of a task, which takes the task over from the present one, as a
// task manager does when a worker is silent. A task that the job does not have is an error, as in Fail.
func (j *Job) TakeOver(ctx context.Context, stage, index int) (*runtime.Handle, error) {
	if err := j.has(stage, index); err != nil {
		return nil, err
	}
	return j.executor.Begin(ctx, stage, index, runtime.Attempt{})
}
