package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/retention"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// Savepoint stops the job with nothing in flight, saves its state under a name, and resumes it;
// with stop, the job ends with runtime.ErrDrained instead. If the savepoint fails, or ctx ends, the job
// continues without it. After the job has ended, or if all its tasks end meanwhile, the error is
// runtime.ErrEnded.
func (j *Job) Savepoint(ctx context.Context, name string, stop bool) (*savepoint.Manifest, error) {
	if err := j.stay(); err != nil {
		return nil, fmt.Errorf("savepoint %q: %w", name, err)
	}
	j.leave() // the tasks may end amid a step: who waits for that waits until the job has ended
	cfg := j.executor.Config()
	if !cfg.Protocol.Capabilities().KeepsChanges {
		return nil, fmt.Errorf("savepoint %q: protocol %s logs no state changes, of which it would be made", name, cfg.Protocol.Name())
	}
	done, err := j.planning(ctx)
	if err != nil {
		return nil, fmt.Errorf("savepoint %q: %w", name, err)
	}
	defer done()
	if err := j.adopted(ctx); err != nil {
		return nil, fmt.Errorf("savepoint %q: %w", name, err)
	}
	if err := j.stay(); err != nil {
		return nil, fmt.Errorf("savepoint %q: %w", name, err)
	}
	defer j.leave()
	described, err := described(ctx, cfg)
	if err != nil {
		return nil, err
	}
	j.restartMu.Lock()
	defer j.restartMu.Unlock()
	// The number identifies the savepoint: tasks stop once for each. It rises also if the clock does
	// not, and is above those of the job's earlier processes if the clock is.
	j.savepoint = max(uint64(max(cfg.Clock().UnixNano(), 0)), j.savepoint+1)
	number := j.savepoint
	m, _, err := savepoint.New(ctx, cfg.Log, cfg.Checkpoints, described, name, number)
	if err != nil {
		return nil, err
	}
	held, err := retention.TakeHold(ctx, cfg.Log, cfg.Layout.Job, "savepoint "+name, sharedlog.First)
	if err != nil {
		return nil, err
	}
	defer held.Release()
	if err := m.Copy(ctx); err != nil { // most of it, while the job runs
		return nil, err
	}
	drained, err := j.drain(number)
	if err != nil {
		return nil, err
	}
	if len(drained) == 0 {
		return nil, fmt.Errorf("savepoint %q: %w: its output is complete", name, runtime.ErrEnded)
	}
	cfg.Reached(observe.Event{Step: observe.SavepointDrained})
	man, err := m.Finish(ctx)
	if err == nil && stop {
		if err = savepoint.Confirm(ctx, cfg.Checkpoints, man); err == nil {
			j.fail(runtime.ErrDrained)
			return man, nil
		}
	}
	if _, rerr := j.resume(drained); err != nil || rerr != nil {
		return nil, errors.Join(err, rerr)
	}
	if err := savepoint.Confirm(ctx, cfg.Checkpoints, man); err != nil {
		return nil, err
	}
	return man, nil
}

// Restart implements rescale.Tasks. It returns when the tasks have their state. Tasks that have committed
// the end of their input do not start again.
func (j *Job) Restart() error {
	if err := j.stay(); err != nil {
		return err
	}
	defer j.leave()
	j.restartMu.Lock()
	defer j.restartMu.Unlock()
	var all []*runtime.Handle
	j.mu.Lock()
	for _, tasks := range j.tasks {
		for _, r := range tasks {
			if r != nil && !ended(r) {
				all = append(all, r)
				j.failed[r] = true
				r.Stop()
			}
		}
	}
	j.mu.Unlock()
	for _, r := range all {
		<-r.Done()
	}
	if err := j.ctx.Err(); err != nil {
		return runtime.ErrEnded
	}
	started, err := j.resume(slices.DeleteFunc(all, func(r *runtime.Handle) bool { return r.Err() == nil }))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for _, r := range started {
		for !ended(r) && !r.Restored() {
			select {
			case <-tick.C:
			case <-r.Done():
			}
		}
	}
	return err
}

// adopted waits until all tasks have adopted the job's routing tables, and what these move is where they say: a change of one, of which this
// process or an earlier one has made a plan, is completed.
func (j *Job) adopted(ctx context.Context) error {
	cfg := j.executor.Config()
	if !slices.ContainsFunc(cfg.Layout.Streams, func(s layout.Stream) bool { return s.Slots > 0 }) {
		return nil
	}
	return j.within(ctx, func(ctx context.Context) error { return cfg.Handover.FinishStep(ctx, func(*rescale.Progress) {}) })
}

// described returns the description of the job with its present tasks, owners and routing tables. While they do not
// change, a key group may still be on its way; the tasks stop when none is.
func described(ctx context.Context, cfg *runtime.Config) (savepoint.Job, error) {
	d := cfg.Savepoint
	var err error
	if d.Planned, err = savepoint.Planned(ctx, cfg.Log, cfg.Layout.Job); err != nil {
		return d, err
	}
	d.Stages = slices.Clone(d.Stages)
	for s, st := range cfg.Present().Stages {
		of := &d.Stages[s]
		of.Tasks, of.Owner = st.Tasks, st.Owner
		if of.Slots == 0 {
			continue
		}
		table, err := cfg.Handover.Table(s)
		if err == nil {
			of.Routes, of.Epoch, err = routing.Saved(table)
		}
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// drain stops the job's tasks for savepoint n and returns those that have stopped for it; the
// others had ended. It waits for every task even if the caller gives up: a source that was asked to
// stop cannot continue, and so the tasks behind it will stop too. After an error the job ends.
func (j *Job) drain(n uint64) (drained []*runtime.Handle, err error) {
	j.executor.Drain(n)
	defer j.executor.Drain(0)
	j.mu.Lock()
	var all []*runtime.Handle
	for _, tasks := range j.tasks {
		for _, r := range tasks {
			if r != nil {
				all = append(all, r)
			}
		}
	}
	j.mu.Unlock()
	for _, r := range all {
		<-r.Done()
		switch {
		case errors.Is(r.Err(), runtime.ErrDrained):
			drained = append(drained, r)
		case r.Err() != nil && err == nil:
			err = r.Err()
		}
	}
	return drained, err
}

// resume starts tasks again that have stopped.
func (j *Job) resume(stopped []*runtime.Handle) (started []*runtime.Handle, err error) {
	for _, r := range stopped {
		t, err := j.executor.Prepare(r.Stage(), r.Index(), runtime.Attempt{}, false)
		if err != nil {
			j.fail(err)
			return started, err
		}
		j.mu.Lock()
		j.begin(t)
		j.mu.Unlock()
		started = append(started, t)
	}
	return started, nil
}
