package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/retention"
	"tailrace.dev/tailrace/tasks/standby"
	"tailrace.dev/tailrace/tasks/status"
)

// Standby keeps a warm copy of a task until ctx ends or Begin has taken it. It returns at once if
// the task keeps no state, or if there is a copy already.
func (e *Executor) Standby(ctx context.Context, stage, index int) error {
	key := standby.Key{Stage: stage, Task: index}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := standby.New[*task](cancel)
	if !e.cfg.warm.Add(key, s) {
		return nil
	}
	var t *task
	err := e.cfg.Retry(ctx, "a standby lags behind; it begins again", func(ctx context.Context) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = recovered(p)
			}
			if err != nil && t != nil && !errors.Is(err, context.Canceled) {
				t.snaps.warm = standby.Groups{} // some of it may be there in part
			}
		}()
		s.Follows.Store(false)
		if t != nil {
			err, t = t.close(), nil
		}
		if err == nil {
			t, err = newTask(e.cfg, stage, index, status.New(e.cfg.Clock, e.cfg.Layout.Stages[stage].Groups))
		}
		if err != nil || !t.keepsState() {
			return err
		}
		return t.follow(ctx, s)
	})
	taken := e.cfg.warm.Remove(key, s) == nil
	if s.Task = t; !taken && t != nil {
		err = errors.Join(err, t.close())
	}
	close(s.Done)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// take returns a task with the state of its standby, if there is one, including what it has read of
// the change log; else a task without state. A newcomer's state is its givers': the copy of a
// predecessor that has left ends.
func (e *Executor) take(stage, index int, newcomer bool) (*task, error) {
	s := e.cfg.warm.Remove(standby.Key{Stage: stage, Task: index}, nil)
	if s != nil {
		s.Stop()
		<-s.Done
		if s.Task != nil && len(s.Task.snaps.warm.Had) > 0 && !newcomer {
			return s.Task, nil
		}
		if s.Task != nil {
			if err := s.Task.close(); err != nil {
				return nil, err
			}
		}
	}
	return newTask(e.cfg, stage, index, status.New(e.cfg.Clock, e.cfg.Layout.Stages[stage].Groups))
}

// awaitMarker waits until the task has a marker, if its job begins from a savepoint. Before that
// the store may have nothing, or a part, of the state that the task takes from there, and
// no change log ever has it.
func (t *task) awaitMarker(ctx context.Context) error {
	if t.cfg.From == "" {
		return nil
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		tail, err := t.cfg.Log.Tail(ctx)
		if err != nil {
			return err
		}
		m, _, err := t.lastMarker(ctx, tail)
		if errors.Is(err, sharedlog.ErrTrimmed) { // since tail was read: there are newer ones
			return nil
		}
		if err != nil || m != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// keepLost is how long a standby keeps the copies of key groups that its task has given away: a receiver
// in this process takes them.
const keepLost = time.Minute

// follow loads the present snapshots and applies the change log as it grows, until ctx ends. It continues
// with other key groups when the task has others. Everything below t.snaps.warm has been applied.
func (t *task) follow(ctx context.Context, s *standby.Copy[*task]) error {
	if err := t.awaitMarker(ctx); err != nil {
		return err
	}
	t.snaps.applied = make([]sharedlog.LSN, len(t.from))
	release := func() {}
	defer func() { release() }()
	var tail sharedlog.LSN
	lost := time.NewTimer(keepLost)
	defer lost.Stop()
	given := map[int]*layout.Layout{} // groups that were taken, and the layout that was known then
	for {
		present := t.cfg.Present()
		owned := present.Owned(t.stage, t.index)
		added := slices.DeleteFunc(standby.Without(owned, t.snaps.warm.Had), func(g int) bool { return given[g] == present })
		if len(added) > 0 {
			release()
			// Until it has caught up once, this hold prevents trimming of what it still has to read;
			// afterwards it is ahead of the trim points.
			held, err := retention.TakeHold(ctx, t.cfg.Log, t.cfg.Layout.Job, fmt.Sprintf("standby of %s/%d, %016x", t.spec.Name, t.index, t.inst.nonce), sharedlog.First)
			if err != nil {
				return err
			}
			release = sync.OnceFunc(held.Release)
			if tail, err = t.cfg.Log.Tail(ctx); err != nil {
				return err
			}
			if err := t.copySnapshots(ctx, added); err != nil {
				return err
			}
		}
		s.Follows.Store(true)
		why, err := s.Read(ctx, lost.C, func(ctx context.Context) error {
			return t.grow(ctx, func(at sharedlog.LSN) {
				if at >= tail {
					release()
				}
			})
		})
		switch {
		case err != nil:
			return err
		case why.Asked != nil:
			taken, err := t.answer(ctx, why.Asked)
			if err != nil {
				return err
			}
			for _, g := range taken {
				given[g] = present
			}
		case why.Moved:
			lost.Reset(keepLost)
		default:
			t.drop(standby.Without(t.snaps.warm.Had, owned))
		}
	}
}

// copySnapshots adds key groups to a copy, as of their snapshots.
func (t *task) copySnapshots(ctx context.Context, groups []int) (err error) {
	for _, g := range groups {
		from := sharedlog.LSN(0)
		if store := t.cfg.Checkpoints; store != nil {
			from, err = store.Load(ctx, t.group(g), func(es []checkpoint.Entry) error {
				for i := range es {
					if err := t.applyEntry(g, &es[i]); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err != nil {
			for _, table := range t.tables {
				table.Detach(g) // a part of it has come
			}
			return err
		}
		t.snaps.warm.Add(g, from)
		t.snaps.applied[g] = 0
	}
	return nil
}

// drop removes key groups from a copy.
func (t *task) drop(groups []int) {
	for _, g := range groups {
		for _, table := range t.tables {
			table.Detach(g)
		}
	}
	t.snaps.warm.Forget(groups)
}

// grow applies the change log to the copy as it grows, until ctx ends.
func (t *task) grow(ctx context.Context, reached func(sharedlog.LSN)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovered(p)
		}
	}()
	if len(t.snaps.warm.Had) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	had := slices.Clone(t.snaps.warm.Had)
	return t.changeLog(ctx, t.cfg.Protocol.NewChangeLog(), had, slices.Clone(t.snaps.warm.Below), 0, func(at sharedlog.LSN) {
		t.snaps.warm.Passed(had, at)
		reached(at)
	})
}

// recovered returns the error of a panic in a serde of the job.
func recovered(p any) error { return fmt.Errorf("panic: %v", p) }

// answer detaches key groups that a task has released at an LSN, when it has read their change logs up to
// there: neither less, nor more. It returns those that are no longer here.
func (t *task) answer(ctx context.Context, a *standby.Ask) (taken []int, err error) {
	defer a.Answer()
	var groups []int
	var from []sharedlog.LSN
	for i, g := range t.snaps.warm.Had {
		if slices.Contains(a.Groups, g) {
			groups, from = append(groups, g), append(from, t.snaps.warm.Below[i])
		}
	}
	if len(groups) == 0 || t.cfg.State != nil { // what is on disk cannot be detached
		return nil, nil
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.Ctx, cancel)()
	if err := t.changeLog(both, t.cfg.Protocol.NewChangeLog(), groups, from, a.At+1, func(at sharedlog.LSN) { t.snaps.warm.Passed(groups, at) }); err != nil {
		if a.Ctx.Err() != nil && ctx.Err() == nil {
			return nil, nil // it was behind by too much
		}
		return nil, err
	}
	t.snaps.warm.Passed(groups, a.At+1)
	groups = slices.DeleteFunc(groups, func(g int) bool { return t.snaps.applied[g] > a.At })
	for _, table := range t.tables {
		if err := table.Restored(groups); err != nil {
			return nil, err
		}
	}
	a.State = exec.Detach(t.tables, groups)
	t.snaps.warm.Forget(groups)
	return groups, nil
}

// Warm asks the standby that this process has of another task of the stage for key groups which that task
// has released at an LSN. The channel gets what the standby has of them, and tell is called; nil: there is
// no standby that could have them. The end of ctx ends the request.
func (e *Engine) Warm(ctx context.Context, giver int, groups []int, at sharedlog.LSN, tell func()) <-chan exec.GroupState {
	s := e.t.cfg.warm.Of(standby.Key{Stage: e.t.stage, Task: giver})
	if s == nil || !s.Follows.Load() {
		return nil
	}
	return s.Request(ctx, groups, at, tell)
}
