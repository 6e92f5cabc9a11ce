package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/tags"
)

// participant is a task's part in an attempt of a job whose tasks commit together. It is nil for a task
// that commits independently: its methods may be called on nil and do nothing then.
type participant struct {
	task     *task
	crew     *Crew
	of       Attempt
	attempt  *attempt // from start on
	protocol progress.Together
	aligner  *progress.Aligner
	interval time.Duration // between checkpoints
	made     uint64        // the newest checkpoint whose barrier the task has emitted
	complete uint64        // the newest that the task knows to be complete
	drained  bool          // the source has ended
	// due is when a source starts the checkpoint after made, if made is complete.
	due time.Time
	// barrierTags are the tags of a barrier: those of markers, and of the task log.
	barrierTags []sharedlog.Tag
	abort       context.CancelCauseFunc // ends the task

	// Beside the task, a keeper puts deltas into the store, and acknowledges.
	deltas   *checkpoint.Deltas // nil: the task has no state, and its barrier acknowledges
	acks     *sharedlog.Writer
	joined   sharedlog.LSN // LSN of the task's announcement
	puts     chan put
	barriers chan barrier
	kept     chan struct{} // closed when the keeper has ended

	mu   sync.Mutex
	news []made // complete, not known to be durable
}

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

// join makes a task a participant of an attempt.
func (a Attempt) join(c *Crew, t *task) {
	if p, ok := together(t.cfg, t.spec); ok {
		own := *t.cfg
		own.CommitInterval = own.FlushInterval // between checkpoints
		t.participant = &participant{
			task: t, crew: c, of: a, protocol: p, interval: t.cfg.CommitInterval,
			puts: make(chan put, 1), barriers: make(chan barrier, 1), kept: make(chan struct{}),
			barrierTags: append(slices.Clone(t.markerTags), tags.Task(t.cfg.Layout.Job, t.spec.Name, t.index)),
		}
		t.cfg = &own
	}
}

// start restores the task's part of the last complete checkpoint. If the task had ended there,
// start sets t.ended and does nothing else.
func (m *participant) start(ctx context.Context) error {
	t := m.task
	l := t.cfg.Layout
	t.began = t.cfg.Clock()
	a, err := enter(ctx, t.cfg.Log, l.Job, m.of)
	if err != nil {
		return err
	}
	m.attempt, t.instance = a, a.Number
	t.status.fenced.Store(max(t.cfg.Clock().Sub(t.began).Microseconds(), 1))
	t.writer = m.writer("")
	m.acks = m.writer("/acks")
	var last *envelope.Marker
	if a.last != nil {
		part, ok := a.last.Find(t.stage, t.index)
		if !ok {
			return fmt.Errorf("checkpoint %d has no such task: the job's stages have changed", a.last.Number)
		}
		m.made, m.complete = a.last.Number, a.last.Number
		if last, err = records.Barrier(ctx, t.cfg.Log, l.Job, t.spec.Name, part); err != nil {
			return err
		}
		t.status.before.Store(last.Items)
		t.skipped = last.Skipped
		t.status.skipped(t.skipped, nil)
		t.ended = part.Ended
	}
	t.status.instance.Store(t.instance)
	if t.ended {
		return nil
	}
	if err := t.chain.Open(t.owned); err != nil {
		return err
	}
	if last != nil {
		t.number, t.watermark, t.idle = last.Commit, last.Watermark, last.Idle
		t.status.watermark.Store(last.Watermark)
		t.table.Restore(last.Seen, last.Watermark)
		t.restoreClock(last.Clock)
	}
	// The producers' record is below the attempt, where nothing is read any more.
	for _, stream := range t.spec.Inputs {
		s := &l.Streams[stream]
		if err := t.table.Register(&envelope.Producers{Stream: uint32(stream), Stage: uint32(s.Producer), Tasks: l.Stages[s.Producer].Tasks}); err != nil {
			return err
		}
	}
	if len(t.tables) > 0 {
		if t.cfg.Checkpoints == nil {
			return fmt.Errorf("protocol %s keeps state outside the log: %w", t.cfg.Protocol.Name(), ErrNoStore)
		}
		if err := m.announce(ctx); err != nil {
			return err
		}
		if err := m.load(ctx); err != nil {
			return fmt.Errorf("restore checkpoint %d: %w", m.made, err)
		}
	} else { // nothing to wait for but the barrier
		m.barrierTags = append(m.barrierTags, tags.Acks(l.Job))
	}
	if last != nil {
		if err := t.resume(last); err != nil {
			return err
		}
	}
	m.aligner = m.protocol.NewAligner(t.table, a.Number, m.made)
	t.inbox = m.aligner
	t.inbox.Limit(t.cfg.HeldMemory)
	if err := t.ready(a.from); err != nil {
		return err
	}
	if t.spec.Partitions > 0 {
		if t.reader, err = t.cfg.Log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tags.Checkpoints(l.Job)}, From: max(a.from, sharedlog.First), BelowFloor: true}); err != nil {
			return err
		}
	}
	t.lastCommit, m.due = t.now, t.now.Add(m.interval)
	crash.Here(crash.CheckpointBegins)
	return nil
}

// fencedIfSuperseded handles an error of a task whose input is trimmed: if a newer attempt has replaced this
// one, it returns ErrFenced, because the successors of a zombie may trim its input.
func (m *participant) fencedIfSuperseded(err error) error {
	if !errors.Is(err, sharedlog.ErrTrimmed) || m.attempt == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	c, failed := m.task.cfg.Log.Get(ctx, m.attempt.condition.Key)
	if failed != nil || bytes.Equal(c.Value, m.attempt.condition.Value) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrFenced, err)
}

// writer returns a writer of the task whose appends have effect while the attempt is the job's.
func (m *participant) writer(what string) *sharedlog.Writer {
	t := m.task
	name := fmt.Sprintf("%s/%s/%d%s@%d.%016x", t.cfg.Layout.Job, t.spec.Name, t.index, what, m.attempt.Number, t.nonce)
	return sharedlog.NewWriter(t.cfg.Log, name, m.attempt.condition)
}

// announce appends a record that says that the task starts, and behind which checkpoint. The
// record's LSN is the task's token for the store: it differs in each attempt and rises with later
// attempts. The place of an attempt need not rise, if nothing was appended in between.
func (m *participant) announce(ctx context.Context) (err error) {
	m.joined, err = m.append(ctx, m.part(m.made, 0, false))
	return err
}

// part returns the task's part of a checkpoint, as a record for the coordinator.
func (m *participant) part(checkpoint uint64, barrier sharedlog.LSN, ended bool) *envelope.Checkpoint {
	t := m.task
	return &envelope.Checkpoint{Job: t.cfg.Layout.Job, Number: checkpoint, Attempt: m.attempt.Number, Tasks: []envelope.CheckpointTask{
		{Stage: uint32(t.stage), Task: uint32(t.index), Barrier: barrier, Ended: ended},
	}}
}

func (m *participant) append(ctx context.Context, part *envelope.Checkpoint) (sharedlog.LSN, error) {
	at, err := m.acks.Append(sharedlog.Record{Tags: []sharedlog.Tag{tags.Acks(part.Job)}, Data: part.Append(nil)}).Wait(ctx)
	if err != nil {
		return 0, m.task.refused(err)
	}
	return at, nil
}

// load reads the task's state from the store, and makes the task its only writer. Before the store
// receives the task's token, the announcement must be durable in the log: if a power failure
// removed it there, the next attempt's token could be lower, and the store would refuse it.
func (m *participant) load(ctx context.Context) error {
	t := m.task
	if err := checkpoint.Durable(ctx, t.cfg.Log, m.joined+1); err != nil {
		return err
	}
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

// loadOnce may be repeated: applying an entry twice has no further effect.
func (m *participant) loadOnce(ctx context.Context, store checkpoint.Store) (err error) {
	t := m.task
	base := make([]sharedlog.LSN, len(t.isMine))
	if err := t.loadAll(ctx, store, m.joined, base); err != nil {
		return err
	}
	t.status.loadedAt.Store(t.cfg.Clock().Sub(t.began).Microseconds())
	if m.deltas, err = checkpoint.OpenDeltas(ctx, store, t.cfg.Layout.Job, t.spec.Name, t.index, m.joined, base); err != nil {
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

// keep starts the keeper, which updates the store beside the task: deltas as they come, and the
// base occasionally. The returned function stops it.
func (m *participant) keep(ctx context.Context) (stop func()) {
	if m == nil {
		return func() {}
	}
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
				if retry(ctx, m.task.cfg.Logger, away, func(ctx context.Context) error { return m.put(ctx, p) }) != nil {
					return
				}
				if err := m.acknowledge(ctx); err != nil {
					m.abort(err)
					return
				}
				if retry(ctx, m.task.cfg.Logger, away, m.fold) != nil {
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
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := m.deltas.Put(ctx, p.checkpoint, p.items); err != nil {
		return m.stored(err)
	}
	crash.Here(crash.CheckpointDelta)
	return nil
}

// acknowledge acknowledges the checkpoint whose delta is in the store and whose barrier is in the log.
func (m *participant) acknowledge(ctx context.Context) error {
	select {
	case b := <-m.barriers:
		part := m.part(b.checkpoint, b.at, b.ended)
		if c := m.crew.near.Load(); c != nil && c.of == m.of {
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
	for durable := m.task.cfg.Log.Stats().Durable; len(m.news) > 0 && m.news[0].at < durable; m.news = m.news[1:] {
		complete = m.news[0].checkpoint
	}
	m.mu.Unlock()
	if err := m.deltas.Complete(complete); err != nil {
		return err
	}
	if !m.deltas.Due() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return m.stored(m.deltas.Fold(ctx))
}

// stored handles the outcome of a write. If another attempt owns the store, that is not an error
// here: the log ends this attempt.
func (m *participant) stored(err error) error {
	m.task.status.snapshotFailed(err)
	if errors.Is(err, checkpoint.ErrFenced) {
		return nil
	}
	return err
}

// completed handles the record of a complete checkpoint. It does not fold those of other attempts.
func (m *participant) completed(at sharedlog.LSN, c *envelope.Checkpoint) {
	if m == nil || c.Attempt != m.attempt.Number {
		return
	}
	m.complete = c.Number
	if m.deltas == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.news = append(m.news, made{c.Number, at})
}

// landed records that the barrier of a checkpoint is in the log.
func (m *participant) landed(checkpoint uint64, at sharedlog.LSN) {
	if m.deltas != nil { // there is room: the keeper has taken the previous one
		m.barriers <- barrier{checkpoint, at, m.task.ended} // a task that has ended emits nothing behind its barrier
	}
}

// finish waits until the task has done its part of its last checkpoint.
func (m *participant) finish(ctx context.Context) error {
	if m == nil {
		return nil
	}
	close(m.puts)
	<-m.kept
	return ctx.Err()
}

// maybeBarrier makes a source emit the barrier of the next checkpoint, when the previous one is complete
// and the interval has passed. done says that it was the last one.
func (m *participant) maybeBarrier(ctx context.Context) (done bool, err error) {
	if m == nil {
		return false, nil
	}
	if m.complete < m.made {
		if err := m.readCheckpoints(); err != nil {
			return false, err
		}
	}
	if m.complete < m.made || m.task.now.Before(m.due) {
		return false, nil
	}
	return m.drained, m.barrier(ctx, m.made+1, m.drained)
}

// readCheckpoints reads the coordinator's records.
func (m *participant) readCheckpoints() error {
	b, err := m.task.reader.TryNext()
	if err != nil {
		return fmt.Errorf("read checkpoints: %w", err)
	}
	var c envelope.Checkpoint
	for i := range b.Entries {
		e := &b.Entries[i]
		if err := c.Parse(e.Data); err != nil {
			return fmt.Errorf("checkpoint at LSN %d: %w", e.LSN, err)
		}
		m.completed(e.LSN, &c)
		if m.complete == m.made {
			m.due = m.task.now.Add(time.Duration(min(c.Rest, uint64(m.interval.Microseconds()))) * time.Microsecond)
		}
	}
	return nil
}

// atEnd reports whether the source has ended.
func (m *participant) atEnd() bool { return m != nil && m.drained }

// wait returns how long a source may sleep, at most most, before it may have to emit a barrier. If
// it waits for the coordinator, told is closed when that has written a record.
func (m *participant) wait(most time.Duration) (sleep time.Duration, told <-chan struct{}) {
	switch {
	case m == nil:
		return most, nil
	case m.complete < m.made:
		return most, m.task.reader.Ready()
	}
	return min(most, max(m.due.Sub(m.task.now), 0)), nil
}

// align emits the task's barrier when the barriers of all its producers have arrived, and then
// processes the records that waited for it. Event time has moved to the barriers' watermark.
func (m *participant) align(ctx context.Context) error {
	t := m.task
	checkpoint, ok := m.aligner.Aligned()
	if !ok {
		return nil
	}
	ended := t.table.Ended() && t.watermark == exec.MaxTime
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

// barrier commits the task's part of a checkpoint: its outputs so far, its barrier, and, in the
// store, the changes of its state since the previous one.
func (m *participant) barrier(ctx context.Context, checkpoint uint64, ended bool) error {
	t := m.task
	t.now = t.cfg.Clock()
	t.barrier, t.ended = checkpoint, ended
	err := t.commit(ctx)
	t.barrier = 0
	m.made = checkpoint
	crash.Here(crash.CheckpointBarrier)
	return err
}

// changed takes the net changes since the last barrier, if this commit is a barrier.
func (m *participant) changed(ctx context.Context, number uint64) error {
	if number == 0 || m.deltas == nil {
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
	t.changes = exec.NewOutput(len(t.isMine)) // the keeper has the old one
	select {
	case m.puts <- p: // only one checkpoint is in progress, so there is room
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
