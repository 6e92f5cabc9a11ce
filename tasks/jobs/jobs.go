package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/meta"
)

// Submit asks for a job to be run and waits until the manager has accepted it. A job that was
// stopped (or refused) resumes, if its settings are the same, without the requests for savepoints, to move key groups or
// to replace routing tables that had no outcome when it stopped. A job that was refused before it ever ran is replaced,
// whatever its settings. A job that has finished with these settings is left alone, which the returned state shows.
func Submit(ctx context.Context, store *meta.Store, spec *tasks.Spec) (meta.State, error) {
	if err := spec.Check(); err != nil {
		return meta.State{}, err
	}
	v, err := store.Look(ctx)
	if err != nil {
		return meta.State{}, err
	}
	have, there := v.Jobs[spec.Name]
	if st := v.States[spec.Name]; there && st.Phase == meta.Refused && st.ID == "" { // it never ran: the log has nothing of it
		err := store.Delete(ctx, spec.Name, "", func(j *meta.Job, st *meta.State) error {
			if !j.Submitted.Equal(have.Submitted) || st.Phase != meta.Refused || st.ID != "" { // it is another one now
				return fmt.Errorf("job %q: %w", spec.Name, meta.ErrExists)
			}
			return nil
		})
		if err != nil && !errors.Is(err, meta.ErrNone) {
			return meta.State{}, err
		}
		there = false
	}
	if !there {
		err := store.Submit(ctx, meta.Job{Spec: spec, Want: meta.Run, Submitted: time.Now().UTC()})
		if err != nil {
			return meta.State{}, err
		}
		return accepted(ctx, store, spec.Name)
	}
	if err := spec.Same(have.Spec); err != nil {
		return meta.State{}, fmt.Errorf("%w; on a cluster give the job another name, or free this one (tailrace job delete %s)", err, spec.Name)
	}
	switch st := v.States[spec.Name]; st.Phase {
	case meta.Finished:
		return st, nil
	case meta.Stopped:
	case meta.Refused, meta.Failed:
		if err := Stop(ctx, store, spec.Name); err != nil {
			return st, err
		}
	default:
		return st, fmt.Errorf("job %q: %w, and it is %s: see tailrace job describe %[1]s; give this one another name, or stop that one", spec.Name, meta.ErrExists, st.Phase)
	}
	err = store.Change(ctx, spec.Name, func(j *meta.Job) error {
		if j.Deleted || !j.Submitted.Equal(have.Submitted) {
			return fmt.Errorf("job %q is being deleted: submit it when that is done (tailrace job delete %[1]s completes it)", spec.Name)
		}
		j.Want, j.Spec = meta.Run, spec
		j.Savepoint = nil
		j.Rescale, j.Reroute = nil, nil // AwaitRescale and AwaitReroute have returned an error for them
		return nil
	})
	if err != nil {
		return meta.State{}, err
	}
	return accepted(ctx, store, spec.Name)
}

// ErrRefused is in the error of a job that the manager does not accept.
var ErrRefused = errors.New("the task manager refused the job")

func accepted(ctx context.Context, store *meta.Store, name string) (meta.State, error) {
	st, err := Await(ctx, store, name, meta.Running, meta.Refused, meta.Failed, meta.Finished)
	if err != nil {
		return st, err
	}
	if st.Phase == meta.Refused {
		return st, fmt.Errorf("job %q: %w: %s", name, ErrRefused, st.Detail)
	}
	return st, nil
}

// Await waits until a job is in one of the phases.
func Await(ctx context.Context, store *meta.Store, name string, phases ...meta.Phase) (st meta.State, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reached, gone := false, false
	var trouble error
	store.Follow(ctx, func(v meta.View) {
		if reached || gone {
			return
		}
		st = v.States[name]
		if _, there := v.Jobs[name]; !there {
			gone = true
			cancel()
			return
		}
		for _, p := range phases {
			if st.Phase == p {
				reached = true
				cancel()
			}
		}
		trouble = nil
		if v.Manager.Name == "" {
			trouble = errors.New("no task manager leads")
		}
	}, func(err error) { trouble = err })
	switch {
	case reached:
		return st, nil
	case gone:
		return st, fmt.Errorf("job %q: %w", name, meta.ErrNone)
	}
	return st, errors.Join(fmt.Errorf("job %q is still %q: %w", name, st.Phase, ctx.Err()), trouble)
}

// Savepoint asks for a savepoint of a running job and waits until it is complete. With stop the job
// then stops. If the savepoint fails, the job continues.
func Savepoint(ctx context.Context, store *meta.Store, name, savepoint string, stop bool) (*meta.Saved, error) {
	v, err := store.Look(ctx)
	if err != nil {
		return nil, err
	}
	before := v.States[name]
	number := uint64(time.Now().UnixNano())
	err = store.Change(ctx, name, func(j *meta.Job) error {
		j.CloseSavepoint(&before) // which the manager does later
		if j.Savepoint != nil {
			return fmt.Errorf("job %q: savepoint %q is being made", name, j.Savepoint.Name)
		}
		j.Savepoint = &meta.Savepoint{Name: savepoint, Number: number, Stop: stop}
		return nil
	})
	if err != nil {
		return nil, err
	}
	withdraw := func() { // it will not be made
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = store.Change(ctx, name, func(j *meta.Job) error {
			if j.Savepoint != nil && j.Savepoint.Number == number {
				j.Savepoint = nil
			}
			return nil
		})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var st meta.State
	done := false
	store.Follow(ctx, func(v meta.View) {
		if done {
			return
		}
		st = v.States[name]
		saved := st.Saved != nil && st.Saved.Number == number
		switch st.Phase {
		case meta.Running:
			done = saved
		case meta.Stopped:
			done = true
		case meta.Finished, meta.Refused, meta.Failed, "":
			done = true
		}
		if done {
			cancel()
		}
	}, nil)
	switch {
	case st.Saved != nil && st.Saved.Number == number && st.Saved.Error != "":
		return nil, fmt.Errorf("job %q continues without a savepoint: %s", name, st.Saved.Error)
	case st.Saved != nil && st.Saved.Number == number:
		return st.Saved, nil
	}
	withdraw()
	if done {
		return nil, fmt.Errorf("job %q is %s: a savepoint is made of a job that runs", name, cmp.Or(st.Phase, "not there"))
	}
	return nil, fmt.Errorf("savepoint %q of job %q is not made yet, the job is %s: %w", savepoint, name, st.Phase, ctx.Err())
}

// Stop asks for a job to be stopped and waits until its tasks have committed and ended.
func Stop(ctx context.Context, store *meta.Store, name string) error {
	v, err := store.Look(ctx)
	if err != nil {
		return err
	}
	switch st := v.States[name]; st.Phase {
	case meta.Finished:
		return fmt.Errorf("job %q has finished", name)
	case meta.Stopped:
		return nil
	}
	err = store.Change(ctx, name, func(j *meta.Job) error {
		j.Want = meta.Stop
		return nil
	})
	if err != nil {
		return err
	}
	_, err = Await(ctx, store, name, meta.Stopped, meta.Finished)
	return err
}

// Delete removes a job that does not run, so that its name is free. It is marked first: from then on it cannot be submitted again,
// which would make it run without what is removed. A worker that was lost may run tasks of it still: what they append has no effect
// any more. Its records stay in the log under its id, which is never used again (pitfall T16), until a manager that leads trims them.
func Delete(ctx context.Context, store *meta.Store, log sharedlog.Log, name string) error {
	job, st, err := store.Mark(ctx, name, func(_ *meta.Job, st *meta.State) error {
		switch st.Phase {
		case meta.Finished, meta.Stopped, meta.Refused, meta.Failed:
			return nil
		}
		return fmt.Errorf("job %q is %s: stop it first", name, cmp.Or(st.Phase, meta.Submitted))
	})
	id := st.ID
	if err == nil && id == "" && job.Spec != nil { // a manager may have registered it, and have ended before it wrote that down
		id, err = job.Spec.Registered(ctx, log)
	}
	if err == nil && id != "" && job.Spec != nil {
		err = job.Spec.Revoke(ctx, log, id)
	}
	if err == nil {
		err = tasks.Forget(ctx, log, name, id)
	}
	if err != nil {
		return err
	}
	return store.Delete(ctx, name, id, func(now *meta.Job, _ *meta.State) error {
		if !now.Submitted.Equal(job.Submitted) { // another call has deleted this one
			return fmt.Errorf("job %q: %w", name, meta.ErrNone)
		}
		return nil
	})
}
