package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/retention"
	"tailrace.dev/tailrace/tasks/status"
)

// taskKey identifies a task of an executor.
type taskKey struct{ stage, index int }

// standby is a warm copy of a task's state: it has loaded the snapshots and follows the change log.
// It is not an instance: it fences nothing and writes nothing. The instance that starts in this
// process takes over its state, and replays what the standby has not read.
type standby struct {
	stop context.CancelFunc
	done chan struct{}
	task *task // valid after done: the copy, or nil
}

// Standby keeps a warm copy of a task until ctx ends or Begin has taken it. It returns at once if
// the task keeps no state, or if there is a copy already.
func (e *Executor) Standby(ctx context.Context, stage, index int) error {
	key := taskKey{stage, index}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &standby{stop: cancel, done: make(chan struct{})}
	e.mu.Lock()
	if e.warm[key] != nil {
		e.mu.Unlock()
		return nil
	}
	e.warm[key] = s
	e.mu.Unlock()
	var t *task
	err := e.cfg.Retry(ctx, "a standby lags behind; it begins again", func(ctx context.Context) (err error) {
		defer func() {
			if p := recover(); p != nil { // in a serde of the job
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		if t != nil {
			err, t = t.close(), nil
		}
		if err == nil {
			t, err = newTask(e.cfg, stage, index, status.New(e.cfg.Clock, e.cfg.Layout.Stages[stage].Groups))
		}
		if err != nil || !t.keepsState() {
			return err
		}
		return t.follow(ctx)
	})
	e.mu.Lock()
	taken := e.warm[key] != s
	if !taken {
		delete(e.warm, key)
	}
	e.mu.Unlock()
	if s.task = t; !taken && t != nil {
		err = errors.Join(err, t.close())
	}
	close(s.done)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// take returns a task with the state of its standby, if there is one, including what it has read of
// the change log; else a task without state. A newcomer's state is its givers': the copy of a
// predecessor that has left ends.
func (e *Executor) take(stage, index int, newcomer bool) (*task, error) {
	key := taskKey{stage, index}
	e.mu.Lock()
	s := e.warm[key]
	delete(e.warm, key)
	e.mu.Unlock()
	if s != nil {
		s.stop()
		<-s.done
		if s.task != nil && s.task.snaps.warm > 0 && !newcomer {
			return s.task, nil
		}
		if s.task != nil {
			if err := s.task.close(); err != nil {
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

// follow loads the present snapshots and applies the change log as it grows, until ctx ends.
// Everything below t.warm has been applied.
func (t *task) follow(ctx context.Context) error {
	if err := t.awaitMarker(ctx); err != nil {
		return err
	}
	t.snaps.had = t.owned
	from := make([]sharedlog.LSN, len(t.owned))
	// Until it has caught up once, this hold prevents trimming of what it still has to read;
	// afterwards it is ahead of the trim points.
	held, err := retention.TakeHold(ctx, t.cfg.Log, t.cfg.Layout.Job, fmt.Sprintf("standby of %s/%d, %016x", t.spec.Name, t.index, t.inst.nonce), sharedlog.First)
	if err != nil {
		return err
	}
	release := sync.OnceFunc(held.Release)
	defer release()
	tail, err := t.cfg.Log.Tail(ctx)
	if err != nil {
		return err
	}
	if store := t.cfg.Checkpoints; store != nil {
		for i, g := range t.owned {
			var err error
			from[i], err = store.Load(ctx, t.group(g), func(es []checkpoint.Entry) error {
				for i := range es {
					if err := t.applyEntry(g, &es[i]); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return t.changeLog(ctx, t.owned, from, 0, func(at sharedlog.LSN) {
		if t.snaps.warm = at; at >= tail {
			release()
		}
	})
}
