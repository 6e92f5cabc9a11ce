package jobs

import (
	"context"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
)

// Autoscale asks the manager to keep the number of tasks of a stage of a job on workers between two
// bounds, as its load demands, until it is asked for others, or for none: also after the job has stopped
// and runs again. What the job's settings do not allow is refused.
func Autoscale(ctx context.Context, store *meta.Store, name string, a tasks.Autoscale) error {
	v, err := store.Look(ctx)
	if err != nil {
		return err
	}
	job, there := v.Jobs[name]
	if !there {
		return fmt.Errorf("job %q: %w", name, meta.ErrNone)
	}
	if err := CheckAutoscale(job.Spec, a); err != nil {
		return fmt.Errorf("job %q: %w", name, err)
	}
	return store.Change(ctx, name, func(j *meta.Job) error {
		j.Auto = slices.DeleteFunc(j.Auto, func(old tasks.Autoscale) bool { return old.Stage == a.Stage })
		if !a.Off() {
			j.Auto = append(j.Auto, a)
		}
		return nil
	})
}

// CheckAutoscale returns why a stage of a job cannot be autoscaled so.
func CheckAutoscale(spec *tasks.Spec, a tasks.Autoscale) error {
	if a.Off() {
		return spec.CheckRescale(tasks.Rescale{Stage: a.Stage, Cancel: true})
	}
	if a.Min > a.Max {
		return fmt.Errorf("from %d to %d tasks: the first is at most the second", a.Min, a.Max)
	}
	if spec.Partitions(a.Stage) > 0 {
		return rescale.OnlyOnRequest(a.Stage)
	}
	for _, n := range []int{a.Min, a.Max} {
		if err := spec.CheckRescale(tasks.Rescale{Stage: a.Stage, Tasks: n}); err != nil {
			return err
		}
	}
	return nil
}
