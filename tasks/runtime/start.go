package runtime

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
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

// newTask prepares the instance of one task. It reads and writes nothing yet.
func newTask(cfg *Config, stage, index int, status *Status) (t *task, err error) {
	defer func() {
		if p := recover(); p != nil { // the job's code creates its functions here
			err = errors.Join(t.recovered(p), t.close())
		}
	}()
	l := cfg.Layout
	spec := &l.Plan.Stages[stage]
	t = &task{
		cfg: cfg, spec: spec, stage: stage, index: index, of: l.Stages[stage].Tasks,
		owned: l.Owned(stage, index), isMine: make([]bool, l.Stages[stage].Groups),
		input: make([]int, len(l.Streams)), status: status,
		changes: exec.NewOutput(l.Stages[stage].Groups), partGroups: map[int]bool{},
		nonce: Nonce(), watermark: exec.MinTime, step: firstStep, commitEvery: cfg.CommitInterval,
	}
	t.step = min(t.step, t.mostUnits())
	for _, g := range t.owned {
		t.isMine[g] = true
	}
	for i := range t.input {
		t.input[i] = -1
	}
	producers := make(map[uint32]uint32)
	for i, stream := range spec.Inputs {
		t.input[stream] = i
		producers[uint32(stream)] = uint32(l.Streams[stream].Producer)
	}
	t.table = progress.NewTable(producers)
	for _, stream := range spec.Outputs {
		t.outputs = append(t.outputs, exec.NewOutput(l.Streams[stream].Groups))
		t.ahead = append(t.ahead, outputLead{stream: stream})
	}
	t.marks, t.dead = make([]exec.Mark, len(t.outputs)), -1
	if l.Stages[stage].DeadLetters {
		t.dead = len(t.outputs) - 1
	}
	t.limit()
	if cfg.State != nil {
		t.home = cfg.State.Task()
	}
	if t.chain, err = spec.New(t); err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.tables = t.chain.Tables()
	return t, nil
}

// commitAs gives the task, which has not started, its committer.
func (t *task) commitAs(of Attempt) (err error) {
	if t.committer, err = t.cfg.Commits.New(&Engine{t}, of); err != nil {
		return errors.Join(err, t.close())
	}
	return nil
}

// Nonce returns 64 random bits that identify one incarnation of a task or process.
func Nonce() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(b[:])
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
	crash.Here(crash.RecoveryFenced)
	t.status.fenced.Store(t.cfg.Clock().Sub(t.began).Microseconds())
	last, found, err := t.lastMarker(ctx, place)
	if err == nil && !(found && last.Ended) {
		t.place = place
		if place, err = register(ctx, place); err == nil && place != t.place {
			t.place = place
			last, found, err = t.lastMarker(ctx, place)
		}
	}
	if err != nil {
		return err
	}
	t.inherit(last)
	if found && last.Ended {
		t.ended = true
		return nil
	}
	if n := t.drain.Load(); n > 0 && found && last.Drained == n {
		return ErrDrained
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
		t.status.position.Store(uint64(position))
	}
	t.inbox = t.cfg.Protocol.NewInbox(t.table, position, low)
	t.inbox.Limit(t.cfg.HeldMemory)
	if err := t.ready(low); err != nil {
		return err
	}
	if err := t.announce(ctx); err != nil {
		return err
	}
	crash.Here(crash.RecoveryAnnounced)
	return nil
}

// ready prepares a task that has its state to read its input from a position.
func (t *task) ready(from sharedlog.LSN) (err error) {
	for _, table := range t.tables {
		if err := table.Restored(); err != nil {
			return err
		}
	}
	// Without this the operators would accept items for windows that have closed.
	t.chain.Stand(exec.Bounds{Time: t.watermark})
	if len(t.spec.Inputs) > 0 {
		t.from = max(from, sharedlog.First)
		if t.reader, err = t.cfg.Log.NewReader(sharedlog.ReaderOptions{Tags: t.inputTags(), From: t.from, BelowFloor: true}); err != nil {
			return err
		}
	}
	t.now = t.cfg.Clock()
	t.lastTick = t.now
	t.status.restored.Store(t.now.Sub(t.began).Microseconds())
	crash.Here(crash.RecoveryRestored)
	return nil
}

// fence makes this instance the task's only one and returns the place from which on no predecessor
// has effect. The value contains a nonce, so that a lost reply is recognised and no two instances
// share a number (pitfall L10).
func (t *task) fence(ctx context.Context) (sharedlog.LSN, error) {
	number, condition, place, err := takeOver(ctx, t.cfg.Log, tags.InstanceKey(t.cfg.Layout.Job, t.spec.Name, t.index), t.nonce)
	if err != nil {
		return 0, err
	}
	t.instance, t.condition = number, condition
	name := fmt.Sprintf("%s/%s/%d#%d.%016x", t.cfg.Layout.Job, t.spec.Name, t.index, t.instance, t.nonce)
	t.writer = sharedlog.NewWriter(t.cfg.Log, name, condition)
	return place, nil
}

// takeOver sets a metadata key to the next number with a nonce. condition holds until the next
// takeOver.
func takeOver(ctx context.Context, log sharedlog.Log, key string, nonce uint64) (number uint64, condition sharedlog.Condition, place sharedlog.LSN, err error) {
	current, err := log.Get(ctx, key)
	if err != nil {
		return 0, condition, 0, fmt.Errorf("read the instance: %w", err)
	}
	for {
		number = 0
		if len(current.Value) > 0 {
			if number, _, err = parseInstance(current.Value); err != nil {
				return 0, condition, 0, fmt.Errorf("metadata key %q: %w", key, err)
			}
		}
		number++
		mine := appendInstance(nil, number, nonce)
		next, err := log.CompareAndSet(ctx, key, current.Value, mine)
		if errors.Is(err, sharedlog.ErrConflict) || errors.Is(err, sharedlog.ErrUnknown) && next.Place > 0 {
			if string(next.Value) != string(mine) { // another process was faster: try again behind it
				current = next
				continue
			}
			err = nil // the value is ours, its reply was lost
		}
		if err != nil {
			return 0, condition, 0, fmt.Errorf("set the instance: %w", err)
		}
		return number, sharedlog.Condition{Key: key, Value: mine}, next.Place, nil
	}
}

// An instance in the metadata is its number and its nonce, 8 bytes each, little
// endian.
func appendInstance(dst []byte, number, nonce uint64) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, number)
	return binary.LittleEndian.AppendUint64(dst, nonce)
}

func parseInstance(b []byte) (number, nonce uint64, err error) {
	if len(b) != 16 {
		return 0, 0, fmt.Errorf("an instance has 16 bytes, this has %d", len(b))
	}
	return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), nil
}

// lastMarker returns the newest marker of the task's predecessors.
func (t *task) lastMarker(ctx context.Context, place sharedlog.LSN) (*envelope.Marker, bool, error) {
	m, at, err := records.LastMarker(ctx, t.cfg.Log, t.cfg.Layout.Job, t.spec.Name, t.index, place)
	if err != nil || m == nil {
		return nil, false, err
	}
	if int(m.Stage) != t.stage || int(m.Task) != t.index {
		return nil, false, fmt.Errorf("marker at LSN %d is of task %d/%d: the job's stages have changed", at, m.Stage, m.Task)
	}
	return m, true, nil
}

// inherit takes over the counts of the predecessor's newest marker, nil if there is none.
func (t *task) inherit(last *envelope.Marker) {
	t.status.itemsIn.Store(0)
	if last != nil {
		t.status.before.Store(last.Items)
		t.skipped, t.skippedBefore = last.Skipped, last.Skipped
		t.status.skipped(t.skipped, nil)
	}
	t.status.instance.Store(t.instance)
	t.status.measure(time.Now(), true)
}

// restoreTime sets the number of the newest commit and what is known of time.
func (t *task) restoreTime(m *envelope.Marker) {
	t.number, t.watermark, t.idle = m.Commit, m.Watermark, m.Idle
	t.status.watermark.Store(m.Watermark)
	t.table.Restore(m.Seen, m.Watermark)
	t.restoreClock(m.Clock)
}

// restore sets the task to what marker m committed.
func (t *task) restore(ctx context.Context, m *envelope.Marker, place sharedlog.LSN) error {
	t.snapshot, t.kept = m.Snapshot, m.Kept
	for i := range m.Seen {
		if m.Seen[i].Drained <= m.Drained {
			m.Seen[i].Drained = 0 // that savepoint is over, for this task too
		}
	}
	t.restoreTime(m)
	if m.Watermark >= t.table.Watermark() { // else timers have fired, as the state shows
		t.skip, t.skipAt = int(m.Units), m.Position
	}
	if t.keepsState() {
		from, err := t.begin(ctx, place)
		if err != nil {
			return err
		}
		t.status.loadedAt.Store(t.cfg.Clock().Sub(t.began).Microseconds())
		crash.Here(crash.RecoveryLoaded)
		if err := t.replay(ctx, from, place); err != nil {
			return err
		}
	}
	return t.resume(m)
}

// resume seeks sources and sinks to the positions in a marker.
func (t *task) resume(m *envelope.Marker) error {
	if len(m.Positions) == 0 {
		return nil
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

func (t *task) inputTags() []sharedlog.Tag {
	var in []sharedlog.Tag
	for _, stream := range t.spec.Inputs {
		s := &t.cfg.Layout.Streams[stream]
		in = append(in, s.All)
		for _, g := range t.owned {
			in = append(in, s.Data[g])
		}
	}
	return in
}
