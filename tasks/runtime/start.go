package runtime

import (
	"context"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/appends"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/lead"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/status"
	"tailrace.dev/tailrace/tasks/timing"
)

// newTask prepares the instance of one task. It reads and writes nothing yet.
func newTask(cfg *Config, stage, index int, shown *status.Status) (t *task, err error) {
	defer func() {
		if p := recover(); p != nil { // the job's code creates its functions here
			err = errors.Join(t.recovered(p), t.close())
		}
	}()
	l := cfg.Present()
	t = &task{assignment: assign(l, stage, index), cfg: cfg, status: shown}
	can := cfg.Protocol.Capabilities()
	t.inst.nonce, t.promise.Time = Nonce(), exec.MinTime
	shown.Owned.Store(int64(len(t.owned)))
	t.times = timing.Times{CommitEvery: cfg.CommitInterval, FlushEvery: cfg.FlushInterval, Flushes: can.Flushes, Source: t.spec.Partitions > 0}
	t.log = appends.Appender{Limit: cfg.InFlight, Status: shown, Resulted: t.resulted, Refused: func(err error) error { return Refused(err, t.inst.number) }}
	producers := make(map[uint32]uint32)
	for _, stream := range t.spec.Inputs {
		producers[uint32(stream)] = uint32(l.Streams[stream].Producer)
	}
	t.in.table = progress.NewTable(producers)
	t.out = outputs{changes: exec.NewOutput(len(t.from)), partGroups: map[int]bool{}, mostUnits: t.mostUnits(), commitSize: cfg.CommitBytes, dead: -1}
	t.out.step = min(firstStep, t.out.mostUnits)
	for _, stream := range t.spec.Outputs {
		t.out.streams = append(t.out.streams, exec.NewOutput(l.Streams[stream].Groups))
		shown.Output(l.Plan.Streams[stream].Name, l.Streams[stream].Groups)
		t.log.Ahead = append(t.log.Ahead, lead.Of(nil, stream))
	}
	t.out.marks = make([]exec.Mark, len(t.out.streams))
	if l.Stages[stage].DeadLetters {
		t.out.dead = len(t.out.streams) - 1
	}
	t.limit()
	if cfg.State != nil {
		t.backend = cfg.State.Task()
	}
	if t.chain, err = t.spec.New(t); err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.tables = t.chain.Tables()
	if t.out.routes, err = routing.New(l, stage, t.out.streams, t.chain, shown, t.reached); err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.moves = t.mover()
	t.plans = t.moves != nil
	return t, nil
}

// commitAs gives the task, which has not started, its committer.
func (t *task) commitAs(of Attempt) (err error) {
	if t.committer, err = t.cfg.Commits.New(&Engine{t}, of); err != nil {
		return errors.Join(err, t.close())
	}
	return nil
}

// Random implements exec.Runtime.
func (t *task) Random() uint64 { return Nonce() }

// start fences the predecessor, restores what it committed, and announces the new instance. If the
// predecessor had committed the end of input, start sets t.ended and does nothing else. register is
// that of Engine.Start.
func (t *task) start(ctx context.Context, register func(context.Context, sharedlog.LSN) (sharedlog.LSN, error)) error {
	place, err := t.fence(ctx)
	if err != nil {
		return err
	}
	t.reached(observe.RecoveryFenced)
	last, at, err := t.lastMarker(ctx, place)
	if err == nil && !ended(last) {
		t.inst.place = place
		if place, err = register(ctx, place); err == nil && place != t.inst.place {
			t.inst.place = place
			last, at, err = t.lastMarker(ctx, place)
		}
	}
	if err != nil {
		return err
	}
	t.inherit(last)
	if ended(last) {
		t.promise.Ended = true
		return nil
	}
	found := last != nil
	if n := t.asked.drain.Load(); n > 0 && found && last.Drained == n {
		return ErrDrained
	}
	if t.moves != nil {
		if found {
			t.number = last.Commit
		}
		if entered, err := t.moves.Begin(ctx, last, at, place); entered || err != nil {
			return err
		}
	}
	if err := t.chain.Open(t.owned); err != nil {
		return err
	}
	if t.cfg.Checkpoints != nil && t.keepsState() {
		// The place is this instance's token for the store. If a power failure removed it from the
		// log, a later instance's token could be lower, and the store would refuse that instance.
		if err := checkpoint.Durable(ctx, t.cfg.Log, place); err != nil {
			return err
		}
	}
	position, low := sharedlog.First, sharedlog.First
	switch {
	case found:
		if err := t.restore(ctx, last, place); err != nil {
			return fmt.Errorf("restore from commit %d: %w", last.Commit, err)
		}
		position, low = last.Position, last.Low
	case t.cfg.From != "":
		if err := t.adopt(ctx, place); err != nil {
			return fmt.Errorf("begin from savepoint %q: %w", t.cfg.From, err)
		}
	}
	if t.spec.Partitions == 0 { // a source has no position in the log, and cannot be behind there
		t.status.Position.Store(uint64(position))
	}
	if err := t.grainAt(ctx, position); err != nil {
		return err
	}
	t.in.inbox = t.cfg.Protocol.NewInbox(t.in.table, position, low)
	t.in.inbox.Limit(t.cfg.HeldMemory)
	if err := t.ready(low); err != nil {
		return err
	}
	if err := t.announce(ctx); err != nil {
		return err
	}
	t.reached(observe.RecoveryAnnounced)
	return nil
}

// ready prepares a task that has its state to read its input from a position.
func (t *task) ready(from sharedlog.LSN) (err error) {
	for _, table := range t.tables {
		if err := table.Restored(t.owned); err != nil {
			return err
		}
	}
	// Without this the operators would accept items for windows that have closed.
	t.chain.Stand(exec.Bounds{Time: t.promise.Time})
	if len(t.spec.Inputs) > 0 {
		t.in.from = max(from, sharedlog.First)
		t.in.next = t.in.from
		if t.in.reader, err = t.cfg.Log.NewReader(sharedlog.ReaderOptions{Tags: t.inputTags(t.cfg.Layout), From: t.in.from, BelowFloor: true}); err != nil {
			return err
		}
	}
	t.times.Now = t.cfg.Clock()
	t.times.Tick = t.times.Now
	t.reached(observe.RecoveryRestored)
	return nil
}

// lastMarker returns the newest marker of the task's predecessors, nil if there is none, and its LSN.
func (t *task) lastMarker(ctx context.Context, place sharedlog.LSN) (*envelope.Marker, sharedlog.LSN, error) {
	return records.MarkerOf(ctx, t.cfg.Log, t.cfg.Layout.Job, t.spec.Name, t.stage, t.index, place)
}

// ended reports whether a marker is the last one that a task ever makes. A task that has left its
// stage may be named again.
func ended(m *envelope.Marker) bool { return m != nil && m.Ended && !m.Left }

// inherit takes over the counts of the predecessor's newest marker, nil if there is none.
func (t *task) inherit(last *envelope.Marker) {
	t.status.ItemsIn.Store(0)
	if last != nil {
		t.status.Before.Store(last.Items)
		t.fail.skipped, t.fail.skippedBefore = last.Skipped, last.Skipped
		t.status.Skipped(t.fail.skipped, nil)
	}
	t.status.Instance.Store(t.inst.number)
	t.status.Measure(true)
}

// restoreTime sets the number of the newest commit and what is known of time.
func (t *task) restoreTime(m *envelope.Marker) {
	t.number, t.promise = m.Commit, progress.Promise{Time: m.Watermark, Idle: m.Idle}
	t.status.Watermark.Store(m.Watermark)
	t.in.table.Restore(m.Seen, m.Watermark)
	t.restoreClock(m.Clock)
}

// restore sets the task to what marker m committed.
func (t *task) restore(ctx context.Context, m *envelope.Marker, place sharedlog.LSN) error {
	t.snaps.named, t.snaps.kept = m.Snapshot, m.Kept
	for i := range m.Seen {
		if m.Seen[i].Drained <= m.Drained {
			m.Seen[i].Drained = 0 // that savepoint is over, for this task too
		}
	}
	t.restoreTime(m)
	if m.Watermark >= t.in.table.Watermark() { // else timers have fired, as the state shows
		t.pos.Skip, t.pos.SkipAt = int(m.Units), m.Position
	}
	if t.keepsState() {
		err := t.rebuild(ctx, place)
		if errors.Is(err, sharedlog.ErrTrimmed) && len(t.snaps.warm.Had) > 0 {
			// The standby has fallen behind what is trimmed, which the snapshots have.
			t.drop(t.owned)
			err = t.rebuild(ctx, place)
		}
		if err != nil {
			return err
		}
	}
	return t.resume(m)
}

// rebuild restores the task's state, as it is at place.
func (t *task) rebuild(ctx context.Context, place sharedlog.LSN) error {
	from, err := t.begin(ctx, place)
	if err != nil {
		return err
	}
	t.reached(observe.RecoveryLoaded)
	return t.replay(ctx, t.owned, from, place)
}

// resume seeks sources and sinks to the positions in a marker.
func (t *task) resume(m *envelope.Marker) error {
	if len(m.Positions) == 0 {
		return nil
	}
	if t.spec.Partitions > 0 && len(m.Released.Groups) > 0 {
		// The positions are as of the release: those of what it gave away are the receivers'.
		if err := t.chain.Give(m.Released.Groups); err != nil {
			return err
		}
	}
	return t.chain.Restore(positions(m.Positions))
}

func positions(of []envelope.Position) []exec.Position {
	ps := make([]exec.Position, len(of))
	for i, p := range of {
		ps[i] = exec.Position{Name: p.Name, Value: p.Value, Units: int(p.Units)}
	}
	return ps
}

// announce appends the instance's first marker. It has the contents of the predecessor's newest
// one, and tells every consumer that the predecessor is over.
func (t *task) announce(ctx context.Context) error {
	return t.commit(ctx)
}
