package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
)

// Reroute asks for another routing table of what a stage of a running job on workers reads, and returns the number of the
// request, which AwaitReroute waits for. was is the present table: the request is void if there is another one by then. It
// replaces a request for that stage that has no outcome yet; with Have it is refused then, and while key groups of the stage
// are to move.
func Reroute(ctx context.Context, store *meta.Store, name string, r tasks.Reroute, was *routing.Table) (number uint64, err error) {
	v, err := store.Look(ctx)
	if err != nil {
		return 0, err
	}
	job, there := v.Jobs[name]
	if !there {
		return 0, fmt.Errorf("job %q: %w", name, meta.ErrNone)
	}
	if err := job.Spec.CheckReroute(r); err != nil {
		return 0, fmt.Errorf("job %q: %w", name, err)
	}
	st := v.States[name]
	if st.Phase != meta.Running && st.Phase != meta.Draining && st.Phase != meta.Saving {
		return 0, fmt.Errorf("job %q is %s: the routing tables of a job that runs can be replaced", name, cmp.Or(st.Phase, meta.Submitted))
	}
	table, had, err := routing.Encode(was, r.Places)
	if err != nil {
		return 0, fmt.Errorf("job %q: stage %s: %w", name, r.Stage, err)
	}
	return number, store.Change(ctx, name, func(j *meta.Job) error {
		number = j.NextNumber(&st, time.Now().UnixNano())
		same := func(old meta.Reroute) bool { return old.Stage == r.Stage }
		if r.Have != nil && waits(j, &st, r.Stage) {
			return fmt.Errorf("job %q: %w", name, rescale.ErrChanged) // or are about to
		}
		j.Reroute = append(slices.DeleteFunc(j.Reroute, same), meta.Reroute{Stage: r.Stage, Number: number, Table: table, Owners: r.Owners, Have: r.Have, Was: had})
		return nil
	})
}

// waits reports whether a request about the key groups or the table of a stage has no outcome. One that has an outcome stays in the
// job until the manager removes it, which is later.
func waits(j *meta.Job, st *meta.State, stage string) bool {
	return slices.ContainsFunc(j.Rescale, func(r meta.Rescale) bool { return r.Stage == stage && !st.Answered(&r) }) ||
		slices.ContainsFunc(j.Reroute, func(r meta.Reroute) bool { return r.Stage == stage && !st.HasRerouted(&r) })
}

// AwaitReroute waits until the request of that number has an outcome, or another one has replaced it. When ctx ends before, the
// request stays (ErrUnderWay).
func AwaitReroute(ctx context.Context, store *meta.Store, name string, number uint64) (done *meta.Rerouted, err error) {
	follow, cancel := context.WithCancel(ctx)
	defer cancel()
	over := false
	var phase meta.Phase
	store.Follow(follow, func(v meta.View) {
		if over {
			return
		}
		j, st := v.Jobs[name], v.States[name]
		phase, done = st.Phase, nil
		for i := range st.Rerouted {
			if st.Rerouted[i].Number == number {
				done = &st.Rerouted[i]
			}
		}
		open := slices.ContainsFunc(j.Reroute, func(r meta.Reroute) bool { return r.Number == number && !st.HasRerouted(&r) })
		switch phase {
		case meta.Finished, meta.Refused, meta.Failed, meta.Stopped, "":
			over = true
		default:
			over = done != nil || !open
		}
		if over {
			cancel()
		}
	}, nil)
	switch {
	case !over:
		return nil, fmt.Errorf("%w: %w", ErrUnderWay, ctx.Err())
	case done == nil && (phase == meta.Running || phase == meta.Draining || phase == meta.Saving):
		return nil, fmt.Errorf("job %q: another request has replaced this one", name)
	case done == nil:
		return nil, fmt.Errorf("job %q is %s: its routing tables stay", name, cmp.Or(phase, "not there"))
	case done.Error != "":
		return done, fmt.Errorf("job %q: %s", name, done.Error)
	}
	return done, nil
}
