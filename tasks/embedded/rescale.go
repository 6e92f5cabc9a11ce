package embedded

import (
	"context"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/runtime"
)

// members returns how many tasks of a stage run when the job starts: those of the newest plan, and
// those that have not left before it.
func members(c *runtime.Config, stage int) int {
	if c.Plan == nil {
		return c.Layout.Stages[stage].Tasks
	}
	return c.Plan.Members(stage)
}

// Rescale moves key groups between the tasks of a stage, which process on, until the stage has the
// tasks that r asks for. If the stage is balanced (Balance), and r says nothing of strategies or owners, key groups
// are distributed by their loads. If ctx ends before, the rescale stays where it is; the next one, or the next
// start of the job, continues it. A stage whose input has ended cannot be rescaled. After the job has
// ended, or if it ends meanwhile, the error is runtime.ErrEnded.
func (j *Job) Rescale(ctx context.Context, r rescale.Request) (*rescale.Result, error) {
	if j.over() {
		return nil, fmt.Errorf("rescale stage %q: %w", r.Stage, runtime.ErrEnded)
	}
	h, err := j.handover(r.Stage, r.Tasks)
	if err != nil {
		return nil, fmt.Errorf("rescale stage %q: %w", r.Stage, err)
	}
	var rescaled *rescale.Result
	err = j.alone(ctx, func(ctx context.Context) (err error) {
		rescaled, err = h.Rescale(ctx, j, j.byLoad(r))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("rescale stage %q: %w", r.Stage, err)
	}
	return rescaled, nil
}

// SwitchGrain sets the grain of a stage whose stream has WatermarkPer(Auto): a clock for each key, or that of the
// task. Each task of the stage takes it over at the same place of its input. It waits while key groups move.
// After the job has ended, or if it ends meanwhile, the error is runtime.ErrEnded.
func (j *Job) SwitchGrain(ctx context.Context, s runtime.Switch) error {
	err := runtime.ErrNoHandover
	switch h := j.executor.Config().Handover; {
	case j.over():
		err = runtime.ErrEnded
	case h != nil:
		err = j.alone(ctx, func(ctx context.Context) error {
			if err := h.Switch(ctx, context.WithoutCancel(ctx), s); err != nil {
				return err
			}
			j.mu.Lock()
			defer j.mu.Unlock()
			j.grains[s.Stage] = s.Grain
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("switch the grain of stage %q: %w", s.Stage, err)
	}
	return nil
}

// Reroute replaces the routing table of streams with slots while the job runs, and then moves key groups to the owners that
// are wanted. It waits while key groups move, and until all tasks have adopted the table.
// After the job has ended, or if it ends meanwhile, the error is runtime.ErrEnded.
func (j *Job) Reroute(ctx context.Context, r routing.Reroute) error {
	err := runtime.ErrNoHandover
	switch h := j.executor.Config().Handover; {
	case j.over():
		err = runtime.ErrEnded
	case h != nil:
		err = j.alone(ctx, func(ctx context.Context) error { return h.Reroute(ctx, j, r) })
	}
	if err != nil {
		return fmt.Errorf("replace the routing table of stage %q: %w", r.Stage, err)
	}
	return nil
}

// Table returns the routing table of what a stage reads, as of the newest plan; nil: it has no slots.
func (j *Job) Table(stage int) (*routing.Table, error) {
	h := j.executor.Config().Handover
	if h == nil {
		return nil, nil
	}
	return h.Table(stage)
}

// alone calls f while no other plan, and no savepoint, is made. The end of the job ends its context.
func (j *Job) alone(ctx context.Context, f func(context.Context) error) error {
	return j.within(ctx, func(ctx context.Context) error {
		done, err := j.planning(ctx)
		if err != nil {
			return err
		}
		defer done()
		return f(ctx)
	})
}

// within calls f with a context that the end of the job ends.
func (j *Job) within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(j.ctx, func() { cancel(runtime.ErrEnded) })()
	err := f(ctx)
	if err != nil && j.ctx.Err() != nil && !errors.Is(err, runtime.ErrEnded) {
		err = fmt.Errorf("%w: %w", runtime.ErrEnded, err)
	}
	return err
}

// handover returns what moves the job's key groups, or why nothing does.
func (j *Job) handover(stage string, tasks int) (runtime.Handover, error) {
	h := j.executor.Config().Handover
	if h != nil {
		return h, nil
	}
	p := j.executor.Config().Protocol
	can := p.Capabilities()
	err := rescale.Refuse(rescale.Subject{Stage: stage, Protocol: p.Name(), Log: can.KeepsChanges, Coordinated: can.Coordinator}, tasks)
	if err == nil || can.Rescales {
		err = runtime.ErrNoHandover
	}
	return nil, err
}

// onlyOnRequest returns why the tasks of a stage are not changed by a policy.
func (j *Job) onlyOnRequest(stage string) error {
	for i := range j.executor.Config().Layout.Plan.Stages {
		if s := &j.executor.Config().Layout.Plan.Stages[i]; s.Name == stage && s.Partitions > 0 {
			return rescale.OnlyOnRequest(stage)
		}
	}
	return nil
}

// over reports whether the job has ended.
func (j *Job) over() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.alive == 0
}

// planning waits until no other rescale, and no savepoint, is made.
func (j *Job) planning(ctx context.Context) (done func(), err error) {
	select {
	case j.plans <- struct{}{}:
		return func() { <-j.plans }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// resumeRescale reaches the goals that a rescale of an earlier process has left.
func (j *Job) resumeRescale() {
	done, err := j.planning(j.ctx)
	if err != nil {
		return // the job has ended
	}
	defer done()
	h := j.executor.Config().Handover
	if err := h.Drive(j.ctx, context.WithoutCancel(j.ctx), j, nil, nil, func(*rescale.Progress) {}); err != nil && j.ctx.Err() == nil {
		j.executor.Config().Logger.Warn("the rescale that an earlier process began is not continued", "error", err)
	}
}

// Enter starts a task that is new in its stage, unless an instance of it runs: one that has left
// may be about to end. It reports whether it has.
func (j *Job) Enter(stage, index int, _ []int) (bool, error) {
	j.restartMu.Lock()
	defer j.restartMu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.alive == 0 {
		return false, runtime.ErrEnded
	}
	if index < len(j.tasks[stage]) {
		if r := j.tasks[stage][index]; r != nil && !ended(r) {
			return false, nil
		}
	}
	r, err := j.executor.Prepare(stage, index, runtime.Attempt{}, true)
	if err == nil {
		j.begin(r)
	}
	return err == nil, err
}

// Retire ends a task that Enter has started and that no plan names. It returns when the task has
// ended: one that is still starting could replace an instance that Enter starts next.
func (j *Job) Retire(stage, index int) {
	j.restartMu.Lock()
	defer j.restartMu.Unlock()
	j.mu.Lock()
	r := j.tasks[stage][index]
	if r != nil {
		j.failed[r] = true
		j.tasks[stage][index] = nil
	}
	j.mu.Unlock()
	if r != nil {
		r.Kill()
		<-r.Done()
	}
}

// Runs reports whether a task runs: its instance has replaced its predecessors.
func (j *Job) Runs(stage, index int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if index >= len(j.tasks[stage]) {
		return false
	}
	r := j.tasks[stage][index]
	return r != nil && !ended(r) && r.Instance() > 0
}

// Changed implements rescale.Tasks: Runs is asked repeatedly.
func (j *Job) Changed() <-chan struct{} { return nil }

func ended(r *runtime.Handle) bool {
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}
