package retention

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/tags"
)

// Revoke removes the metadata of a job that was deleted. All appends of its tasks, and of the managers and coordinators of it, are
// conditional on a part of that: a worker that was lost, and runs on, appends nothing from then on. The manager's key is removed first: a task
// that starts meanwhile looks for it (package fencing).
func (t *Trimmer) Revoke(ctx context.Context) error {
	job := t.layout.Job
	if err := unset(ctx, t.log, tags.ManagerKey(job)); err != nil {
		return fmt.Errorf("remove metadata key %q: %w", tags.ManagerKey(job), err)
	}
	keys := []string{tags.AttemptKey(job), tags.HoldsKey(job), tags.AutoscaleKey(job)}
	for s, st := range t.layout.Stages {
		name := t.layout.Plan.Stages[s].Name
		for i := range max(st.Tasks, st.Groups) { // as many as it can have had
			keys = append(keys, tags.InstanceKey(job, name, i), tags.CoordinatorKey(job, name, i))
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	for _, key := range keys {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := unset(ctx, t.log, key); err != nil {
				cancel(fmt.Errorf("remove metadata key %q: %w", key, err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// unset removes a metadata key.
func unset(ctx context.Context, log sharedlog.Log, key string) error {
	c, err := log.Get(ctx, key)
	for err == nil && len(c.Value) > 0 {
		if c, err = log.CompareAndSet(ctx, key, c.Value, nil); errors.Is(err, sharedlog.ErrConflict) || errors.Is(err, sharedlog.ErrUnknown) && c.Place > 0 {
			err = nil // c is what it is now
		}
	}
	return err
}
