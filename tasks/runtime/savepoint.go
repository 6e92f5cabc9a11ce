package runtime

import (
	"context"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/retention"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// adopt restores the task from a savepoint. It copies the state into the task's own snapshots,
// which its first marker names; afterwards the task is like any other. No change log has this
// state, so the marker waits until the store can no longer lose the copy.
func (t *task) adopt(ctx context.Context, place sharedlog.LSN) error {
	store := t.cfg.Checkpoints
	var m *savepoint.Manifest
	err := Retry(ctx, t.cfg, "the checkpoint store cannot be read; the task waits for it", func(ctx context.Context) (err error) {
		if m, err = savepoint.Find(ctx, store, t.cfg.From); errors.Is(err, savepoint.ErrNone) {
			return nil
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case m == nil:
		return savepoint.ErrNone
	}
	fits, err := m.Fit(&t.cfg.Savepoint, t.cfg.DropState)
	if err != nil {
		return err
	}
	fit, ok := fits[t.spec.Name]
	if !ok { // the stage is new
		return nil
	}
	st := fit.From
	t.promise.Time = st.Watermark
	t.status.Watermark.Store(st.Watermark)
	t.in.table.Restore(nil, st.Watermark)
	t.restoreClock(st.Clock)
	if t.keepsState() && fit.Kept() {
		for pass := 0; ; pass++ {
			again := pass == 0
			for _, g := range t.owned {
				copied, err := t.adoptGroup(ctx, m, fit, g, place, pass == 0)
				if err != nil {
					return err
				}
				again = again || copied // the store has lost it meanwhile
			}
			if !again || store.LossWindow() <= 0 {
				break
			}
			if err := checkpoint.AwaitLossWindow(ctx, store); err != nil {
				return err
			}
		}
		t.snaps.named, t.snaps.kept = sharedlog.First, sharedlog.First
		t.reached(observe.AdoptionLoaded)
	}
	ps, err := st.Task(t.index, t.of)
	if err != nil {
		return err
	}
	for _, p := range positions(ps) {
		if err := t.chain.Restore([]exec.Position{p}); err != nil && !errors.Is(err, exec.ErrNotPlaced) {
			return err
		}
	}
	return nil
}

// adoptGroup copies the state of one key group, unless the task's own store has it: an earlier
// instance may have copied it without committing, and then adoptGroup only loads it.
func (t *task) adoptGroup(ctx context.Context, m *savepoint.Manifest, fit *savepoint.StageFit, g int, place sharedlog.LSN, load bool) (copied bool, err error) {
	store := t.cfg.Checkpoints
	var lost, unfit error // retrying does not help if it is lost, or if the program cannot read it
	see := func(es []checkpoint.Entry) error {
		for i := range es {
			if err := t.applyEntry(g, &es[i]); err != nil {
				unfit = err
				return err
			}
		}
		t.status.Loaded.Add(uint64(len(es)))
		t.reached(observe.AdoptionLoading)
		return nil
	}
	pass := func(es []checkpoint.Entry) ([]checkpoint.Entry, error) {
		es, err := fit.Translate(es)
		for i := range es {
			if err == nil {
				err = t.checkKey(&es[i])
			}
		}
		if unfit = err; err == nil {
			err = see(es)
		}
		return es, err
	}
	err = Retry(ctx, t.cfg, "the checkpoint store cannot be read; the task waits for it", func(ctx context.Context) error {
		at, err := store.Begin(ctx, t.group(g), place)
		switch {
		case err != nil || at > 0 && !load:
			return err
		case at > 0:
			_, err = store.Load(ctx, t.group(g), see)
		default:
			copied = true
			_, err = savepoint.Copy(ctx, store, m.Group(t.spec.Name, g), t.group(g), place, pass, func(at sharedlog.LSN) (sharedlog.LSN, error) {
				return sharedlog.First, m.Whole(fit.From, g, at) // the state is not in this log
			})
		}
		if errors.Is(err, savepoint.ErrLost) {
			lost, err = err, nil
		}
		if unfit != nil {
			err = nil
		}
		return err
	})
	return copied, errors.Join(err, lost, unfit)
}

// checkKey checks that this program encodes a key as the program that wrote it did.
func (t *task) checkKey(e *checkpoint.Entry) error {
	table, key, err := envelope.SplitKey(e.Key)
	if err != nil || table >= uint64(len(t.tables)) {
		return err
	}
	if c, ok := t.tables[table].(exec.KeyChecker); ok {
		return c.CheckKey(key)
	}
	return nil
}

// Savepoint stops the job with nothing in flight, saves its state under a name, and resumes it;
// with stop, the job ends with ErrDrained instead. If the savepoint fails, or ctx ends, the job
// continues without it; a job that has ended has no savepoint.
func (j *Job) Savepoint(ctx context.Context, name string, stop bool) (*savepoint.Manifest, error) {
	cfg := j.executor.cfg
	if !cfg.Protocol.Capabilities().KeepsChanges {
		return nil, fmt.Errorf("savepoint %q: protocol %s logs no state changes, of which it would be made", name, cfg.Protocol.Name())
	}
	if err := j.stay(); err != nil {
		return nil, fmt.Errorf("savepoint %q: %w", name, err)
	}
	defer j.leave()
	j.restartMu.Lock()
	defer j.restartMu.Unlock()
	// The number identifies the savepoint: tasks stop once for each. It rises also if the clock does
	// not, and is above those of the job's earlier processes if the clock is.
	j.savepoint = max(uint64(max(cfg.Clock().UnixNano(), 0)), j.savepoint+1)
	number := j.savepoint
	m, _, err := savepoint.New(ctx, cfg.Log, cfg.Checkpoints, cfg.Savepoint, name, number)
	if err != nil {
		return nil, err
	}
	held, err := retention.TakeHold(ctx, cfg.Log, cfg.Layout.Job, "savepoint "+name, sharedlog.First)
	if err != nil {
		return nil, err
	}
	defer held.Release()
	if err := m.Copy(ctx); err != nil { // most of it, while the job runs
		return nil, err
	}
	drained, err := j.drain(number)
	if err != nil {
		return nil, err
	}
	if len(drained) == 0 {
		return nil, fmt.Errorf("savepoint %q: %w: its output is complete", name, errEnded)
	}
	cfg.Reached(observe.Event{Step: observe.SavepointDrained})
	man, err := m.Finish(ctx)
	if err == nil && stop {
		if err = savepoint.Confirm(ctx, cfg.Checkpoints, man); err == nil {
			j.fail(ErrDrained)
			return man, nil
		}
	}
	if rerr := j.resume(drained); err != nil || rerr != nil {
		return nil, errors.Join(err, rerr)
	}
	if err := savepoint.Confirm(ctx, cfg.Checkpoints, man); err != nil {
		return nil, err
	}
	return man, nil
}

// drain stops the job's tasks for savepoint n and returns those that have stopped for it; the
// others had ended. It waits for every task even if the caller gives up: a source that was asked to
// stop cannot continue, and so the tasks behind it will stop too. After an error the job ends.
func (j *Job) drain(n uint64) (drained []*Handle, err error) {
	j.executor.Drain(n)
	defer j.executor.Drain(0)
	j.mu.Lock()
	var all []*Handle
	for _, tasks := range j.tasks {
		all = append(all, tasks...)
	}
	j.mu.Unlock()
	for _, r := range all {
		<-r.done
		switch {
		case errors.Is(r.err, ErrDrained):
			drained = append(drained, r)
		case r.err != nil && err == nil:
			err = r.err
		}
	}
	return drained, err
}

// resume restarts the tasks that drain has stopped.
func (j *Job) resume(drained []*Handle) error {
	for _, r := range drained {
		t, err := j.executor.prepare(r.task.stage, r.task.index, Attempt{})
		if err != nil {
			j.fail(err)
			return err
		}
		j.mu.Lock()
		j.begin(t)
		j.mu.Unlock()
	}
	return nil
}
