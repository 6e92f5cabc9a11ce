package runtime

import (
	"context"
	"errors"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// adopt restores the task from a savepoint. It copies the state into the task's own snapshots,
// which its first marker names; afterwards the task is like any other. No change log has this
// state, so the marker waits until the store can no longer lose the copy.
func (t *task) adopt(ctx context.Context, place sharedlog.LSN) error {
	store := t.cfg.Checkpoints
	var m *savepoint.Manifest
	err := t.cfg.Retry(ctx, "the checkpoint store cannot be read; the task waits for it", func(ctx context.Context) (err error) {
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
	t.promise.Time = st.Time(t.owned)
	t.status.Watermark.Store(t.promise.Time)
	t.in.table.Restore(nil, t.promise.Time)
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
	err = t.cfg.Retry(ctx, "the checkpoint store cannot be read; the task waits for it", func(ctx context.Context) error {
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
