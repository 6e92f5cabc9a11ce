package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/tags"
)

// member is a task's part in an attempt of a job whose tasks commit together. Its methods
// may be called on nil, the part of a task that commits alone; they do nothing then.
type member struct {
	task     *task
	attempt  *attempt
	protocol progress.Together
	aligner  *progress.Aligner
	made     uint64 // the newest checkpoint that the task has emitted its barrier of
	drained  bool   // the source is at its end
	// barrierTags are a barrier's: the markers', and the task log's.
	barrierTags []sharedlog.Tag

	// Beside the task, a keeper puts deltas into the store.
	deltas *checkpoint.Deltas // nil: the task has no state
	puts   chan put
	kept   chan struct{} // closed when the keeper has ended

	mu     sync.Mutex
	halves map[uint64]half // of checkpoints that are not acknowledged yet
}

// put is a delta on its way to the store.
type put struct {
	checkpoint uint64
	items      []checkpoint.Items
}

// half is what is known of the two things that a task acknowledges together.
type half struct {
	barrier sharedlog.LSN // in the log
	delta   bool          // in the store
	ended   bool
}

// join makes a task part of the attempt.
func (a *attempt) join(t *task) {
	if p, ok := together(t.cfg, t.spec); ok {
		own := *t.cfg
		own.CommitInterval = own.FlushInterval // between checkpoints; the interval of those is the attempt's
		t.cfg = &own
		t.member = &member{
			task: t, attempt: a, protocol: p, puts: make(chan put, 1), kept: make(chan struct{}), halves: map[uint64]half{},
			barrierTags: append(slices.Clone(t.markerTags), tags.Task(t.cfg.Layout.Job, t.spec.Name, t.index)),
		}
	}
}

// start restores what the last complete checkpoint holds of the task. If it ended there,
// t.ended is set and nothing else happened.
func (m *member) start(ctx context.Context) error {
	t, a := m.task, m.attempt
	l := t.cfg.Layout
	t.began, t.place, t.instance, t.nonce = a.began, a.place, a.number, a.nonce
	t.status.instance.Store(t.instance)
	t.status.fenced.Store(max(t.cfg.Clock().Sub(t.began).Microseconds(), 1))
	name := fmt.Sprintf("%s/%s/%d@%d.%016x", l.Job, t.spec.Name, t.index, a.number, a.nonce)
	t.writer = sharedlog.NewWriter(t.cfg.Log, name, a.condition)
	var last *envelope.Marker
	if a.last != nil {
		part, ok := a.last.Find(t.stage, t.index)
		if !ok {
			return fmt.Errorf("checkpoint %d has no such task: the job's stages have changed", a.last.Number)
		}
		if part.Ended {
			t.ended = true
			return nil
		}
		var err error
		if last, err = barrierOf(ctx, t.cfg.Log, l, part); err != nil {
			return err
		}
		m.made = a.last.Number
	}
	if err := t.chain.Open(t.owned); err != nil {
		return err
	}
	if last != nil {
		t.number, t.watermark, t.idle = last.Commit, last.Watermark, last.Idle
		t.status.watermark.Store(last.Watermark)
		t.table.Restore(last.Seen, last.Watermark)
	}
	// The producers' record lies below the place, where nothing is read any more.
	for _, stream := range t.spec.Inputs {
		s := &l.Streams[stream]
		if err := t.table.Register(&envelope.Producers{Stream: uint32(stream), Stage: uint32(s.Producer), Tasks: l.Stages[s.Producer].Tasks}); err != nil {
			return err
		}
	}
	if len(t.tables) > 0 {
		if t.cfg.Checkpoints == nil {
			return fmt.Errorf("protocol %s keeps state in a checkpoint store, and the job has none: give it one (Options.Checkpoints; --checkpoints)", t.cfg.Protocol.Name())
		}
		if err := m.load(ctx); err != nil {
			return fmt.Errorf("restore checkpoint %d: %w", m.made, err)
		}
	}
	if last != nil {
		if err := t.resume(last); err != nil {
			return err
		}
	}
	m.aligner = m.protocol.NewAligner(t.table, a.number, m.made)
	t.inbox = m.aligner
	if err := t.ready(a.place); err != nil {
		return err
	}
	t.lastCommit = t.now
	crash.Here(crash.CheckpointBegins)
	return nil
}

// load reads the task's state from the store, of which it becomes the only writer.
func (m *member) load(ctx context.Context) error {
	t := m.task
	const away = "the checkpoint store cannot be reached; the task waits for it"
	var lasting error // trying again does not help
	err := retry(ctx, t.cfg.Logger, away, func(ctx context.Context) error {
		err := m.loadOnce(ctx, t.cfg.Checkpoints)
		switch {
		case errors.Is(err, checkpoint.ErrFenced):
			lasting = fmt.Errorf("%w: %w", ErrFenced, err)
		case errors.Is(err, checkpoint.ErrOther):
			lasting = err
		default:
			return err
		}
		return nil
	})
	return errors.Join(err, lasting)
}

// loadOnce may be repeated: what is applied twice is the same.
func (m *member) loadOnce(ctx context.Context, store checkpoint.Store) (err error) {
	t, a := m.task, m.attempt
	base := make([]sharedlog.LSN, len(t.isMine))
	if err := t.loadAll(ctx, store, a.place, base); err != nil {
		return err
	}
	t.status.loadedAt.Store(t.cfg.Clock().Sub(t.began).Microseconds())
	if m.deltas, err = checkpoint.OpenDeltas(ctx, store, t.cfg.Layout.Job, t.spec.Name, t.index, a.place, base); err != nil {
		return err
	}
	return m.deltas.Restore(ctx, m.made, func(it checkpoint.Items) error {
		for b := it.Data; len(b) > 0; {
			item, rest, err := envelope.NextItem(b)
			if err == nil {
				err = applyItem(t.tables, it.Group, &item)
			}
			if err != nil {
				return err
			}
			t.status.replayed.Add(1)
			b = rest
		}
		return nil
	})
}

// durable waits until what lies below a place of the log cannot be lost any more.
func (m *member) durable(ctx context.Context, place sharedlog.LSN) error {
	log := m.task.cfg.Log
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for log.Stats().Durable < place {
		if _, err := log.Tail(ctx); err != nil { // a log that is far away hears of it by this
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// keep keeps the store up to date beside the task: deltas as they come, and the base once
// in a while. The returned function ends that.
func (m *member) keep(ctx context.Context) (stop func()) {
	if m == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(m.kept)
		const away = "no checkpoint is complete for now; processing goes on"
		for {
			select {
			case <-ctx.Done():
				return
			case p, ok := <-m.puts:
				if !ok {
					return
				}
				if retry(ctx, m.task.cfg.Logger, away, func(ctx context.Context) error { return m.put(ctx, p) }) != nil ||
					retry(ctx, m.task.cfg.Logger, away, m.fold) != nil {
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

// put writes a delta and acknowledges it.
func (m *member) put(ctx context.Context, p put) error {
	if m.deltas != nil {
		// The place is the writer's token: it must not be in the store and then lost
		// from the log, whose next one could be lower.
		if err := m.durable(ctx, m.attempt.place); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		if err := m.deltas.Put(ctx, p.checkpoint, p.items); err != nil {
			return m.stored(err)
		}
		crash.Here(crash.CheckpointDelta)
	}
	m.done(p.checkpoint, func(h *half) { h.delta = true })
	return nil
}

// fold puts into the base what is complete and cannot be lost, if it is enough.
func (m *member) fold(ctx context.Context) error {
	if m.deltas == nil {
		return nil
	}
	if err := m.deltas.Complete(m.attempt.durable.Load()); err != nil {
		return err
	}
	if !m.deltas.Due() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return m.stored(m.deltas.Fold(ctx))
}

// stored takes the outcome of a write. That another attempt has the store is no error
// here: the log ends this one.
func (m *member) stored(err error) error {
	m.task.status.snapshotFailed(err)
	if errors.Is(err, checkpoint.ErrFenced) {
		return nil
	}
	return err
}

// done notes a half of the task's acknowledgement, and gives it when it has both.
func (m *member) done(checkpoint uint64, note func(h *half)) {
	m.mu.Lock()
	h := m.halves[checkpoint]
	note(&h)
	m.halves[checkpoint] = h
	both := h.barrier > 0 && h.delta
	if both {
		delete(m.halves, checkpoint)
	}
	m.mu.Unlock()
	if both { // there is room for one of each task, and no task has two under way
		m.attempt.acks <- ack{checkpoint, envelope.CheckpointTask{Stage: uint32(m.task.stage), Task: uint32(m.task.index), Barrier: h.barrier, Ended: h.ended}}
	}
}

// landed is told that the barrier of a checkpoint is in the log.
func (m *member) landed(checkpoint uint64, at sharedlog.LSN) {
	ended := m.task.ended // nothing comes behind the barrier of a task that has
	m.done(checkpoint, func(h *half) { h.barrier, h.ended = at, ended })
}

// finish waits until the task has done its part of its last checkpoint.
func (m *member) finish(ctx context.Context) error {
	if m == nil {
		return nil
	}
	close(m.puts)
	<-m.kept
	return ctx.Err()
}

// turn lets a source emit its barrier, if it was asked to. done says that it was the last
// one.
func (m *member) turn(ctx context.Context) (done bool, err error) {
	if m == nil {
		return false, nil
	}
	checkpoint, _ := m.attempt.asks()
	if checkpoint <= m.made {
		return false, nil
	}
	return m.drained, m.barrier(ctx, checkpoint, m.drained)
}

// atEnd reports whether there is nothing more to read from the source.
func (m *member) atEnd() bool { return m != nil && m.drained }

// asked is closed when a source is asked for a barrier.
func (m *member) asked() <-chan struct{} {
	if m == nil {
		return nil
	}
	checkpoint, changed := m.attempt.asks()
	if checkpoint > m.made {
		now := make(chan struct{})
		close(now)
		return now
	}
	return changed
}

// align emits the task's barrier when those of all its producers are there, and goes on
// with what waited for it. Event time has moved to what the barriers say.
func (m *member) align(ctx context.Context) error {
	t := m.task
	checkpoint, ok := m.aligner.Aligned()
	if !ok {
		return nil
	}
	ended := t.table.Ended() && t.watermark == operators.MaxTime
	if err := m.barrier(ctx, checkpoint, ended); err != nil || ended {
		return err
	}
	held, err := m.aligner.Pass()
	if err != nil {
		return err
	}
	if err := t.count(ctx, held); err != nil {
		return err
	}
	return t.advance(ctx)
}

// barrier commits the task's part of a checkpoint: its outputs so far, its barrier, and,
// beside it, what has changed in its state since the one before.
func (m *member) barrier(ctx context.Context, checkpoint uint64, ended bool) error {
	t := m.task
	t.now = t.cfg.Clock()
	t.barrier, t.ended = checkpoint, ended
	err := t.commit(ctx)
	t.barrier = 0
	m.made = checkpoint
	crash.Here(crash.CheckpointBarrier)
	return err
}

// changed takes the net changes since the last barrier, if this commit is one.
func (m *member) changed(ctx context.Context, number uint64) error {
	if number == 0 {
		return nil
	}
	t := m.task
	keys := 0
	for i, table := range t.tables {
		table.Changes(i, t.changes)
		keys += table.Len()
	}
	t.status.state.Store(int64(keys))
	p := put{checkpoint: number}
	for _, g := range t.changes.Touched() {
		p.items = append(p.items, checkpoint.Items{Group: g, Data: t.changes.Section(g).Data})
	}
	t.changes = operators.NewOutput(len(t.isMine)) // the keeper has the old one
	select {
	case m.puts <- p: // one checkpoint is under way, so there is room
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
