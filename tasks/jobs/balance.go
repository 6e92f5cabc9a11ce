package jobs

import (
	"context"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/balance"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
)

// Balance asks the manager to distribute the key groups of a stage of a job on workers over its tasks, as
// their load demands, until it is asked otherwise: also after the job has stopped and runs again. What
// the job's settings do not allow is refused.
func Balance(ctx context.Context, store *meta.Store, name string, b tasks.Balance) error {
	v, err := store.Look(ctx)
	if err != nil {
		return err
	}
	if err := allowed(&v, name, &b); err != nil {
		return err
	}
	return change(ctx, store, name, b.Stage, &b)
}

// allowed returns why a stage of a job cannot be balanced.
func allowed(v *meta.View, name string, b *tasks.Balance) error {
	job, there := v.Jobs[name]
	if !there {
		return fmt.Errorf("job %q: %w", name, meta.ErrNone)
	}
	err := b.Check()
	if b.Planner != nil {
		err = fmt.Errorf("dispatch %s: the manager, which balances jobs on workers, is not the job's program and has no planner of it: use least-count, weight or auto", balance.Own)
	}
	if err == nil && job.Spec.Partitions(b.Stage) > 0 {
		err = rescale.OnlyOnRequest(b.Stage)
	}
	if err == nil {
		err = job.Spec.CheckRescale(tasks.Rescale{Stage: b.Stage, Tasks: 1})
	}
	if err != nil {
		return fmt.Errorf("job %q: %w", name, err)
	}
	return nil
}

// EndBalance leaves the key groups of a stage where they are from now on.
func EndBalance(ctx context.Context, store *meta.Store, name, stage string) error {
	return change(ctx, store, name, stage, nil)
}

func change(ctx context.Context, store *meta.Store, name, stage string, b *tasks.Balance) error {
	return store.Change(ctx, name, func(j *meta.Job) error {
		j.Balance = slices.DeleteFunc(j.Balance, func(old tasks.Balance) bool { return old.Stage == stage })
		if b != nil {
			j.Balance = append(j.Balance, *b)
		}
		return nil
	})
}
