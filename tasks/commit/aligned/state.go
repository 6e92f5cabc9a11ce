package aligned

import (
	"context"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/runtime"
)

// put is a delta to be written to the store.
type put struct {
	checkpoint uint64
	items      []checkpoint.Items
}

// barrier is a barrier in the log.
type barrier struct {
	checkpoint uint64
	at         sharedlog.LSN
	ended      bool
}

// made is a complete checkpoint and the LSN of its record.
type made struct {
	checkpoint uint64
	at         sharedlog.LSN
}

// load reads the task's state from the store, and makes the task its only writer. Before the store
// receives the task's token, the announcement must be durable in the log: if a power failure
// removed it there, the next attempt's token could be lower, and the store would refuse it.
func (m *participant) load(ctx context.Context) error {
	if err := checkpoint.Durable(ctx, m.job.cfg.Log, m.joined+1); err != nil {
		return err
	}
	const away = "the checkpoint store cannot be reached; the task waits for it"
	var lasting error // trying again does not help
	err := m.job.cfg.Retry(ctx, away, func(ctx context.Context) error {
		err := m.loadOnce(ctx, m.job.cfg.Checkpoints)
		switch {
		case errors.Is(err, checkpoint.ErrFenced):
			lasting = fmt.Errorf("%w: %w", runtime.ErrFenced, err)
		case errors.Is(err, checkpoint.ErrOther):
			lasting = err
		default:
			return err
		}
		return nil
	})
	return errors.Join(err, lasting)
}

// loadOnce may be repeated: applying an entry twice has no further effect.
func (m *participant) loadOnce(ctx context.Context, store checkpoint.Store) (err error) {
	base, err := m.Engine.Load(ctx, store, m.joined)
	if err != nil {
		return err
	}
	if m.deltas, err = checkpoint.OpenDeltas(ctx, store, m.job.cfg.Layout.Job, m.spec.Name, int(m.self.Task), m.joined, base); err != nil {
		return err
	}
	m.deltas.Observe(m.Engine.Reached)
	return m.deltas.Restore(ctx, m.emitted, func(it checkpoint.Items) error { return m.Engine.Apply(it.Group, it.Data) })
}

// keep starts the keeper, which updates the store beside the task: deltas as they come, and the
// base occasionally. The returned function stops it.
func (m *participant) keep(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(m.kept)
		const away = "no checkpoint can complete for now; processing continues"
		for {
			select {
			case <-ctx.Done():
				return
			case p, ok := <-m.puts:
				if !ok {
					return
				}
				if m.job.cfg.Retry(ctx, away, func(ctx context.Context) error { return m.put(ctx, p) }) != nil {
					return
				}
				if err := m.acknowledge(ctx); err != nil {
					m.abort(err)
					return
				}
				if m.job.cfg.Retry(ctx, away, m.fold) != nil {
					return
				}
			}
		}
	}()
	return func() {
		cancel()
		<-m.kept
	}
}

// put writes a delta.
func (m *participant) put(ctx context.Context, p put) error {
	ctx, cancel := context.WithTimeout(ctx, runtime.WriteTimeout)
	defer cancel()
	if err := m.deltas.Put(ctx, p.checkpoint, p.items); err != nil {
		return m.stored(err)
	}
	m.Engine.Reached(observe.CheckpointDelta)
	return nil
}

// acknowledge acknowledges the checkpoint whose delta is in the store and whose barrier is in the log.
func (m *participant) acknowledge(ctx context.Context) error {
	select {
	case b := <-m.barriers:
		part := m.part(b.checkpoint, b.at, b.ended)
		if c := m.job.near.Load(); c != nil && c.of == m.of {
			c.acks <- part // there is room for one of each task, and no task has two in progress
			return nil
		}
		_, err := m.append(ctx, part)
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fold merges complete and durable checkpoints into the base, once there is enough to merge.
func (m *participant) fold(ctx context.Context) error {
	m.mu.Lock()
	complete := uint64(0)
	for durable := m.job.cfg.Log.Stats().Durable; len(m.news) > 0 && m.news[0].at < durable; m.news = m.news[1:] {
		complete = m.news[0].checkpoint
	}
	m.mu.Unlock()
	if err := m.deltas.Complete(complete); err != nil {
		return err
	}
	if !m.deltas.Due() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, runtime.WriteTimeout)
	defer cancel()
	return m.stored(m.deltas.Fold(ctx))
}

// stored handles the outcome of a write. If another attempt owns the store, that is not an error
// here: the log ends this attempt.
func (m *participant) stored(err error) error {
	m.Engine.SnapshotFailed(err)
	if errors.Is(err, checkpoint.ErrFenced) {
		return nil
	}
	return err
}

// Changes implements runtime.Committer: at a barrier, the keeper receives the net changes since the
// last one. Nothing is logged.
func (m *participant) Changes(ctx context.Context) ([]sharedlog.Record, error) {
	if m.now == 0 || m.deltas == nil {
		return nil, nil
	}
	changes := m.Engine.NetChanges()
	p := put{checkpoint: m.now}
	for _, g := range changes.Touched() {
		p.items = append(p.items, checkpoint.Items{Group: g, Data: changes.Section(g).Data})
	}
	select {
	case m.puts <- p: // only one checkpoint is in progress, so there is room
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
