package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
)

// ErrUnderWay is in the error of AwaitRescale when a rescale has no outcome yet: it continues.
var ErrUnderWay = errors.New("the rescale continues")

// Rescale asks for key groups of a running job to be moved between the tasks of a stage, and returns
// the number of the request, which AwaitRescale waits for. It replaces a request for that stage that
// has no outcome yet; with Have it is refused then. What the job's settings do not allow is refused at once. With Cancel and no
// stage, it is for all stages whose key groups can move.
func Rescale(ctx context.Context, store *meta.Store, name string, r tasks.Rescale) (number uint64, err error) {
	v, err := store.Look(ctx)
	if err != nil {
		return 0, err
	}
	job, there := v.Jobs[name]
	if !there {
		return 0, fmt.Errorf("job %q: %w", name, meta.ErrNone)
	}
	of := []string{r.Stage}
	if r.Cancel && r.Stage == "" {
		of = nil
		for _, st := range job.Spec.Plan.Stages {
			if job.Spec.CheckRescale(tasks.Rescale{Stage: st.Name, Cancel: true}) == nil {
				of = append(of, st.Name)
			}
		}
	}
	for _, stage := range of {
		r.Stage = stage
		if err := job.Spec.CheckRescale(r); err != nil {
			return 0, fmt.Errorf("job %q: %w", name, err)
		}
	}
	if len(of) == 0 {
		return 0, fmt.Errorf("job %q has no stage whose key groups could move", name)
	}
	if st := v.States[name]; st.Phase != meta.Running && st.Phase != meta.Draining && st.Phase != meta.Saving {
		return 0, fmt.Errorf("job %q is %s: the key groups of a job that runs can move", name, cmp.Or(st.Phase, meta.Submitted))
	}
	return number, store.Change(ctx, name, func(j *meta.Job) error {
		st := v.States[name]
		number = j.NextNumber(&st, time.Now().UnixNano())
		for _, stage := range of {
			if r.Have != nil && waits(j, &st, stage) {
				return fmt.Errorf("job %q: %w", name, rescale.ErrChanged) // or are about to
			}
			j.Rescale = slices.DeleteFunc(j.Rescale, func(old meta.Rescale) bool { return old.Stage == stage })
			j.Rescale = append(j.Rescale, meta.Rescale{
				Stage: stage, Number: number, Tasks: r.Tasks, Strategy: r.Strategy, Owners: r.Owners, Have: r.Have, Batch: r.Batch, Mode: r.Mode, ID: r.ID, Cancel: r.Cancel,
			})
		}
		return nil
	})
}

// AwaitRescale waits until the request of that number has an outcome, for all its stages, or another
// one has replaced it. When ctx ends before, the rescale continues (ErrUnderWay).
func AwaitRescale(ctx context.Context, store *meta.Store, name string, number uint64) (done []meta.Rescaled, err error) {
	follow, cancel := context.WithCancel(ctx)
	defer cancel()
	over := false
	var phase meta.Phase
	var replaced bool
	store.Follow(follow, func(v meta.View) {
		if over {
			return
		}
		j, st := v.Jobs[name], v.States[name]
		phase, done, replaced = st.Phase, nil, false
		waits := false
		for i := range j.Rescale {
			r := &j.Rescale[i]
			waits = waits || r.Number == number && !st.Answered(r)
			replaced = replaced || r.Number > number
		}
		for _, d := range st.Rescaled {
			if d.Number == number {
				done = append(done, d)
			}
			replaced = replaced || d.Number > number
		}
		switch phase {
		case meta.Finished, meta.Refused, meta.Failed, meta.Stopped, "":
			over = true
		default:
			over = !waits
		}
		if over {
			cancel()
		}
	}, nil)
	var failed []error
	for _, d := range done {
		if d.Error != "" {
			failed = append(failed, fmt.Errorf("job %q: %s", name, d.Error))
		}
	}
	switch {
	case !over:
		return nil, fmt.Errorf("%w: %w", ErrUnderWay, ctx.Err())
	case len(failed) > 0:
		return done, errors.Join(failed...)
	case len(done) > 0:
		return done, nil
	case replaced:
		return nil, fmt.Errorf("job %q: another request has replaced this one", name)
	}
	return nil, fmt.Errorf("job %q is %s: its key groups move no more", name, cmp.Or(phase, "not there"))
}
