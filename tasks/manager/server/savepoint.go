package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// pendingSavepoint is a savepoint in progress. It holds the change logs until end, and not longer
// than the term of leadership.
type pendingSavepoint struct {
	maker *savepoint.Maker
	done  *savepoint.Manifest // it existed before
	held  *tasks.Hold
	once  sync.Once
	ended chan struct{}
}

func (m *pendingSavepoint) end() {
	m.once.Do(func() {
		close(m.ended)
		m.held.Release()
	})
}

// beginSavepoint starts a savepoint, and takes a hold on the change logs. The hold has this
// manager's name, because another manager may lead when it is released.
func (r *term) beginSavepoint(ctx context.Context, j meta.Job, id string, tell func(func())) (_ *pendingSavepoint, err error) {
	m := &pendingSavepoint{ended: make(chan struct{})}
	if r.opt.Checkpoints == nil {
		return nil, errors.New("the task manager knows no checkpoint store (tailrace manager --checkpoints), where it would be kept")
	}
	if err := j.Spec.Savable(); err != nil {
		return nil, err
	}
	// A deposed manager must not take the plans from the one that leads, nor the copies of its savepoint.
	if err := r.leader.Leads(ctx); err != nil {
		return nil, err
	}
	if err := r.finishStep(ctx, j, id, tell); err != nil {
		return nil, err
	}
	if m.held, err = tasks.TakeHold(ctx, r.opt.Log, id, fmt.Sprintf("savepoint %s, by manager %s", j.Savepoint.Name, r.opt.Me.Name), sharedlog.First); err != nil {
		return nil, err
	}
	r.wg.Go(func() {
		select {
		case <-r.life:
		case <-m.ended:
		}
		m.end()
	})
	if m.maker, m.done, err = j.Spec.Savepoint(ctx, r.opt.Log, r.opt.Checkpoints, id, j.Savepoint.Name, j.Savepoint.Number); err != nil {
		m.end()
		return nil, err
	}
	return m, nil
}

// copying copies the state of a job that runs, for the savepoint with a number.
type copying struct {
	number uint64
	cancel context.CancelFunc
}

// copyState starts to copy what can be copied of a job's state while the job runs.
func (r *term) copyState(life context.Context, j meta.Job, id string, tell func(func()), wg *sync.WaitGroup) {
	ctx, cancel := context.WithCancel(life)
	name := j.Spec.Name
	if before := r.copies[name]; before != nil {
		before.cancel()
	}
	r.copies[name] = &copying{j.Savepoint.Number, cancel}
	wg.Go(func() {
		defer cancel()
		m, err := r.beginSavepoint(ctx, j, id, tell)
		if err == nil && m.maker != nil {
			if err = m.maker.Copy(ctx); err != nil {
				m.end()
			}
		}
		if life.Err() == nil {
			r.copied(j, id, m, err, tell)
		}
	})
}

// copied handles the end of copyState.
func (r *term) copied(j meta.Job, id string, m *pendingSavepoint, err error, tell func(func())) {
	name := j.Spec.Name
	if err != nil {
		tell(func() {
			if r.core.Copied(now(), name, j.Savepoint.Number, err.Error()) {
				r.outcome(j, id, meta.Saved{Error: err.Error()})
			}
		})
		return
	}
	tell(func() {
		if !r.core.Copied(now(), name, j.Savepoint.Number, "") {
			r.wg.Go(m.end)
			return
		}
		if before := r.pending[name]; before != nil {
			r.wg.Go(before.end)
		}
		r.pending[name] = m
	})
}

// abandon releases savepoints that are no longer wanted, because their jobs were stopped or deleted
// or their requests withdrawn.
func (r *term) abandon() {
	for name, c := range r.copies {
		if j := r.jobs[name]; r.states[name].Phase != meta.Running || j.Savepoint == nil || j.Savepoint.Number != c.number {
			c.cancel() // it may wait for tasks that run no more
			delete(r.copies, name)
		}
	}
	for name, m := range r.pending {
		_, known := r.jobs[name]
		if p := r.states[name].Phase; !known || p != meta.Draining && p != meta.Saving {
			r.wg.Go(m.end)
			delete(r.pending, name)
		}
	}
}

// savePatience is for how long a job stands still for a savepoint that cannot be completed, for
// example because the checkpoint store is unavailable.
const savePatience = time.Minute

// save completes a savepoint: all tasks have stopped. m is what copyState has started, nil if
// another manager had started it.
func (r *term) save(ctx context.Context, j meta.Job, id string, m *pendingSavepoint, tell func(func())) {
	began := time.Now()
	until, cancel := context.WithTimeout(ctx, savePatience)
	defer cancel()
	var man *savepoint.Manifest
	var err error
	for until.Err() == nil {
		if m == nil {
			m, err = r.beginSavepoint(until, j, id, tell)
		}
		if err == nil {
			if man = m.done; man == nil {
				man, err = m.maker.Finish(until)
			}
		}
		if err == nil {
			err = savepoint.Confirm(until, r.opt.Checkpoints, man)
		}
		if err == nil || errors.Is(err, savepoint.ErrExists) || errors.Is(err, savepoint.ErrPlanned) { // tasks that stand still carry out no plan
			break
		}
		r.opt.Logger.Warn("a savepoint cannot be completed; trying again while the job stands still", "job", j.Spec.Name, "error", err)
		if m != nil {
			m.end()
			m = nil
		}
		select {
		case <-until.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	if m != nil {
		m.end()
	}
	if ctx.Err() != nil {
		return // the next manager starts again
	}
	name, stop, what := j.Spec.Name, err == nil && j.Savepoint.Stop, ""
	saved := meta.Saved{StoodStill: time.Since(began)}
	if err != nil {
		what = fmt.Sprintf("savepoint %s was not made: %v", j.Savepoint.Name, err)
		saved.Error = err.Error()
	} else {
		what = fmt.Sprintf("savepoint %s is made", j.Savepoint.Name)
		saved.At, saved.Entries = man.At, man.Entries
	}
	tell(func() {
		r.outcome(j, id, saved)
		r.core.Saved(now(), name, stop, what)
	})
}

// outcome notes the result of a savepoint, to be written. The request is removed when that is in etcd (tidy): removed before by a manager
// that leads no more, it would never have an outcome.
func (r *term) outcome(j meta.Job, id string, saved meta.Saved) {
	name := j.Spec.Name
	st, known := r.states[name]
	if !known || st.ID != id {
		return // the job was deleted
	}
	saved.Name, saved.Number = j.Savepoint.Name, j.Savepoint.Number
	st.Saved = &saved
	r.states[name], r.changed[name] = st, true
}
