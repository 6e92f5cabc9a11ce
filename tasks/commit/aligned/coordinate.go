package aligned

import (
	"context"
	"fmt"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/tags"
)

// coordinates reports whether this task also runs the coordinator of its job's checkpoints. Apart
// from that the task is like all others, so the failure of the coordinator needs no handling of its
// own: it is a failure of the task.
func (m *participant) coordinates() bool {
	first := m.job.parts[0]
	return first.Stage == m.self.Stage && first.Task == m.self.Task
}

// lead runs the coordinator beside the task, if it is the task that does. A failure of the
// coordinator ends the task. final waits until the job's last checkpoint is complete, or the task
// is asked to stop; end stops the coordinator.
func (m *participant) lead(ctx context.Context) (final func() error, end func()) {
	if !m.coordinates() {
		return func() error { return nil }, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.coordinate(ctx); err != nil && ctx.Err() == nil {
			m.abort(fmt.Errorf("checkpoints: %w", err))
		}
	}()
	final = func() error {
		select {
		case <-done:
			return ctx.Err()
		case <-m.Engine.Stopping():
			return runtime.ErrStopped
		}
	}
	return final, func() {
		cancel()
		<-done
	}
}

// coordinator decides checkpoints from the tasks' records in the log. Tasks in its own process also
// tell it directly, which is an append sooner. (When the whole job runs in one process, its latency
// is compared with other protocols, so it should not wait for what it could know.)
type coordinator struct {
	*participant
	of   runtime.Attempt
	acks chan *envelope.Checkpoint
	core *progress.Coordinator
	w    *sharedlog.Writer
	to   []sharedlog.Tag // tags of a complete checkpoint's record
	// began is when the sources have started the current checkpoint, or will start it.
	began time.Time
}

// coordinate decides one checkpoint after the other until the job's last is complete or ctx ends.
// It returns runtime.ErrFenced if another attempt has started.
func (m *participant) coordinate(ctx context.Context) error {
	l, a, parts := m.job.cfg.Layout, m.attempt, m.job.parts
	c := &coordinator{
		participant: m, of: m.of, acks: make(chan *envelope.Checkpoint, len(parts)), core: progress.NewCoordinator(l.Job, a.Number, parts, a.last),
		w: m.writer("/coordinator"), to: []sharedlog.Tag{tags.Checkpoints(l.Job)}, began: m.job.cfg.Clock().Add(m.interval),
	}
	for i := range l.Streams {
		c.to = append(c.to, l.Streams[i].All)
	}
	r, err := m.job.cfg.Log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tags.Acks(l.Job)}, From: max(a.from, sharedlog.First), BelowFloor: true})
	if err != nil {
		return err
	}
	defer r.Close()
	m.job.near.Store(c)
	defer m.job.near.CompareAndSwap(c, nil)
	for !c.core.Final() {
		b, err := r.TryNext()
		if err != nil {
			return fmt.Errorf("read acknowledgements: %w", err)
		}
		for i := range b.Entries {
			e := &b.Entries[i]
			number, part, ok, err := a.partIn(e)
			if err != nil {
				return fmt.Errorf("acknowledgement at LSN %d: %w", e.LSN, err)
			}
			if !ok {
				continue
			}
			if err := c.ack(ctx, number, part); err != nil {
				return err
			}
		}
		if len(b.Entries) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.Ready():
		case k := <-c.acks:
			if err := c.ack(ctx, k.Number, k.Tasks[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// ack records a task's part of a checkpoint; the last part completes it.
func (c *coordinator) ack(ctx context.Context, number uint64, part envelope.CheckpointTask) error {
	c.Engine.Reached(observe.CheckpointAcked)
	record, err := c.core.Ack(number, part)
	if err != nil || record == nil {
		return err
	}
	c.Engine.Reached(observe.CheckpointDecided)
	// Sources start one each interval, or at once if this one has taken longer.
	now := c.job.cfg.Clock()
	rest := max(c.interval-now.Sub(c.began), 0)
	record.Rest = uint64(rest.Microseconds())
	c.began = now.Add(rest)
	if _, err := c.w.Append(sharedlog.Record{Tags: c.to, Data: record.Append(nil)}).Wait(ctx); err != nil {
		return runtime.Refused(err, c.attempt.Number)
	}
	c.Engine.Reached(observe.CheckpointComplete)
	c.core.Completed()
	return nil
}

// partIn reads a task's part of a checkpoint; ok is false for records of older attempts.
func (a *attempt) partIn(e *sharedlog.Entry) (number uint64, part envelope.CheckpointTask, ok bool, err error) {
	kind, err := envelope.KindOf(e.Data)
	switch {
	case err != nil:
		return 0, part, false, err
	case kind == envelope.KindMarker: // of a task without state
		var b envelope.Marker
		err := b.Parse(e.Data)
		return b.Checkpoint, envelope.CheckpointTask{Stage: b.Stage, Task: b.Task, Barrier: e.LSN, Ended: b.Ended}, b.Instance == a.Number, err
	}
	var c envelope.Checkpoint
	if err := c.Parse(e.Data); err != nil {
		return 0, part, false, err
	}
	if len(c.Tasks) != 1 {
		return 0, part, false, fmt.Errorf("it is of %d tasks", len(c.Tasks))
	}
	return c.Number, c.Tasks[0], c.Attempt == a.Number, nil
}
