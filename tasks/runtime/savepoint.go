package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// adopt begins with what a savepoint holds. The state is copied into the task's own
// snapshots, which its first marker names: from there on it is like any other.
func (t *task) adopt(ctx context.Context, place sharedlog.LSN) error {
	store := t.cfg.Checkpoints
	var m *savepoint.Manifest
	err := retry(ctx, t.cfg.Logger, "the checkpoint store cannot be read; the task waits for it", func(ctx context.Context) (err error) {
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
	st, err := m.Stage(t.spec.Name)
	if err != nil {
		return err
	}
	t.watermark = st.Watermark
	t.status.watermark.Store(st.Watermark)
	t.table.Restore(nil, st.Watermark)
	if t.keepsState() {
		for _, g := range t.owned {
			err := retry(ctx, t.cfg.Logger, "the checkpoint store cannot be read; the task waits for it", func(ctx context.Context) error {
				return t.adoptGroup(ctx, store, m, g, place)
			})
			if err != nil {
				return err
			}
		}
		t.snapshot, t.kept = sharedlog.First, sharedlog.First
		crash.Here(crash.AdoptionLoaded)
	}
	ps, err := st.Task(t.index, t.of)
	if err != nil {
		return err
	}
	for _, p := range positions(ps) {
		if err := t.chain.Restore([]operators.Position{p}); err != nil && !errors.Is(err, operators.ErrNotPlaced) {
			return err
		}
	}
	return nil
}

func (t *task) adoptGroup(ctx context.Context, store checkpoint.Store, m *savepoint.Manifest, g int, place sharedlog.LSN) error {
	load := func(es []checkpoint.Entry) error {
		for i := range es {
			if err := t.applyEntry(g, &es[i]); err != nil {
				return err
			}
		}
		t.status.loaded.Add(uint64(len(es)))
		crash.Here(crash.AdoptionLoading)
		return nil
	}
	at, err := store.Begin(ctx, t.group(g), place)
	if err != nil {
		return err
	}
	if at > 0 { // an instance before this one had copied it, and committed nothing
		_, err = store.Load(ctx, t.group(g), load)
		return err
	}
	_, err = savepoint.Copy(ctx, store, m.Group(t.spec.Name, g), t.group(g), place, load, func(sharedlog.LSN) sharedlog.LSN { return sharedlog.First }) // of this log nothing is in it
	return err
}

// Savepoint stops the job, with nothing left on its way, keeps what it is under a name,
// and lets it go on, unless it is to stop there: then it ends with ErrDrained. If it fails,
// or ctx ends, the job goes on without; a job that has ended has no savepoint.
func (j *Job) Savepoint(ctx context.Context, name string, stop bool) (*savepoint.Manifest, error) {
	cfg := j.crew.cfg
	if !cfg.Protocol.KeepsChanges() {
		return nil, fmt.Errorf("savepoint %q: protocol %s logs no state changes, of which it would be made", name, cfg.Protocol.Name())
	}
	if err := j.stay(); err != nil {
		return nil, fmt.Errorf("savepoint %q: %w", name, err)
	}
	defer j.leave()
	j.turn.Lock()
	defer j.turn.Unlock()
	number := uint64(time.Now().UnixNano())
	m, _, err := savepoint.New(ctx, cfg.Log, cfg.Checkpoints, cfg.Savepoint, name, number)
	if err != nil {
		return nil, err
	}
	held, err := TakeHold(ctx, cfg.Log, cfg.Layout.Job, "savepoint "+name, sharedlog.First)
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
	crash.Here(crash.SavepointDrained)
	man, err := m.Finish(ctx)
	if err == nil && stop {
		j.fail(ErrDrained)
		return man, nil
	}
	return man, errors.Join(err, j.resume(drained))
}

// drain stops the job's tasks for savepoint n and returns those that have stopped for it:
// the others had ended. It waits for all of them, whoever has lost patience: a source that
// has stopped was told so for good, and those behind it will stop, too. After an error the
// job ends.
func (j *Job) drain(n uint64) (drained []*Running, err error) {
	j.crew.Drain(n)
	defer j.crew.Drain(0)
	j.mu.Lock()
	var all []*Running
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

// resume begins the tasks again that drain has stopped.
func (j *Job) resume(drained []*Running) error {
	for _, r := range drained {
		t, err := j.crew.take(r.task.stage, r.task.index)
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
