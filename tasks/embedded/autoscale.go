package embedded

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/autoscale"
)

// scaler is what scales a stage.
type scaler struct {
	*autoscale.Scaler
	stop context.CancelFunc
}

// Autoscale keeps the number of tasks of a stage between the bounds of r, as its load demands, from
// now on until it is asked for other bounds, or for none: also in later processes of the job. It
// rescales as Rescale does, and is refused what Rescale is refused.
func (j *Job) Autoscale(ctx context.Context, r autoscale.Request) error {
	if err := j.stay(); err != nil {
		return fmt.Errorf("autoscale stage %q: %w", r.Stage, err)
	}
	defer j.leave()
	err := j.checkAutoscale(&r)
	if err == nil {
		err = autoscale.Store(ctx, j.executor.Config().Log, j.Layout().Job, r)
	}
	if err != nil {
		return fmt.Errorf("autoscale stage %q: %w", r.Stage, err)
	}
	j.scale(r)
	return nil
}

// Autoscaled returns how the job's stages are scaled, by the names of those that are.
func (j *Job) Autoscaled() []autoscale.State {
	j.mu.Lock()
	all := slices.Collect(maps.Values(j.scalers))
	j.mu.Unlock()
	states := make([]autoscale.State, 0, len(all))
	for _, s := range all {
		states = append(states, s.State())
	}
	slices.SortFunc(states, func(a, b autoscale.State) int { return cmp.Compare(a.Stage, b.Stage) })
	return states
}

// checkAutoscale returns why a request cannot be carried out.
func (j *Job) checkAutoscale(r *autoscale.Request) error {
	if r.Off() {
		return nil
	}
	if r.Min > r.Max {
		return fmt.Errorf("from %d to %d tasks: the first is at most the second", r.Min, r.Max)
	}
	if err := j.onlyOnRequest(r.Stage); err != nil {
		return err
	}
	for _, n := range []int{r.Min, r.Max} {
		h, err := j.handover(r.Stage, n)
		if err == nil {
			err = h.Check(r.Stage, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// scale starts to scale a stage, in place of how it was scaled. The caller keeps the job from ending.
func (j *Job) scale(r autoscale.Request) {
	cfg := j.executor.Config()
	j.mu.Lock()
	defer j.mu.Unlock()
	if old := j.scalers[r.Stage]; old != nil {
		old.stop()
		delete(j.scalers, r.Stage)
	}
	if r.Off() {
		return
	}
	ctx, stop := context.WithCancel(j.ctx)
	index := slices.IndexFunc(cfg.Layout.Plan.Stages, func(s exec.StageSpec) bool { return s.Name == r.Stage })
	s := &scaler{autoscale.New(j, cfg.Log, cfg.Logger, index, r), stop}
	j.scalers[r.Stage] = s
	j.beside.Go(func() { s.Run(ctx) })
}

// resumeAutoscale scales stages as earlier processes of the job were asked to.
func (j *Job) resumeAutoscale(all map[string]autoscale.Request) {
	for _, r := range all {
		if err := j.checkAutoscale(&r); err != nil {
			j.executor.Config().Logger.Warn("a stage is not autoscaled, as an earlier process was asked to", "stage", r.Stage, "error", err)
			continue
		}
		j.scale(r)
	}
}

// Busy reports whether key groups are moving, or a savepoint is made.
func (j *Job) Busy() bool { return len(j.plans) > 0 }
