package aligned

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/commit/direct"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/tags"
)

// participant is a task's part in an attempt of a job. It implements runtime.Committer.
type participant struct {
	*direct.Committer
	job      *commits
	spec     *exec.StageSpec
	self     envelope.CheckpointTask // stage and number
	nonce    uint64
	of       runtime.Attempt
	attempt  *attempt // from Start on
	aligner  *progress.Aligner
	interval time.Duration // between checkpoints
	emitted  uint64        // the newest checkpoint whose barrier the task has emitted
	complete uint64        // the newest that the task knows to be complete
	now      uint64        // the checkpoint whose barrier the next marker is, 0: none
	drained  bool          // the source has ended
	// due is when a source starts the checkpoint after emitted, if that is complete.
	due time.Time
	// markers and barrierTags are the tags of markers, and of those that are barriers.
	markers, barrierTags []sharedlog.Tag
	checkpoints          sharedlog.Reader        // of the coordinator's records; nil: the task is no source
	abort                context.CancelCauseFunc // ends the task

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

func newParticipant(job *commits, e *runtime.Engine, of runtime.Attempt) *participant {
	spec, stage := e.Stage()
	e.CommitAsFlush() // between checkpoints
	m := &participant{
		Committer: direct.New(e), job: job, spec: spec, self: envelope.CheckpointTask{Stage: uint32(stage), Task: uint32(e.Index())},
		nonce: e.Nonce(), of: of, interval: job.cfg.CommitInterval, markers: e.OutputTags(), barrierTags: append(e.OutputTags(), e.TaskTag()),
		puts: make(chan put, 1), barriers: make(chan barrier, 1), kept: make(chan struct{}),
	}
	if !e.HasState() { // its barrier is its acknowledgement
		m.barrierTags = append(m.barrierTags, tags.Acks(job.cfg.Layout.Job))
	}
	return m
}

// Run implements runtime.Committer.
func (m *participant) Run(ctx context.Context, live func(context.Context) error) (err error) {
	ctx, m.abort = context.WithCancelCause(ctx)
	defer m.abort(nil)
	if err = live(ctx); err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if m.checkpoints != nil {
		err = errors.Join(err, m.checkpoints.Close())
	}
	return m.fencedIfSuperseded(err)
}

// Start implements runtime.Committer: it restores the task's part of the last complete checkpoint.
func (m *participant) Start(ctx context.Context) error {
	l := m.job.cfg.Layout
	a, err := enter(ctx, m.job.cfg.Log, l.Job, m.of, m.job.cfg.Observer)
	if err != nil {
		return err
	}
	m.attempt = a
	m.Engine.Begin(a.Number, m.writer(""))
	m.acks = m.writer("/acks")
	var last *envelope.Marker
	if a.last != nil {
		part, ok := a.last.Find(int(m.self.Stage), int(m.self.Task))
		if !ok {
			return fmt.Errorf("checkpoint %d has no such task: the job's stages have changed", a.last.Number)
		}
		m.emitted, m.complete = a.last.Number, a.last.Number
		if last, err = records.Barrier(ctx, m.job.cfg.Log, l.Job, m.spec.Name, part); err != nil {
			return err
		}
		m.Engine.End(part.Ended)
	}
	m.Engine.Inherit(last)
	if m.Engine.Ended() {
		return nil
	}
	if err := m.Engine.Restore(last); err != nil {
		return err
	}
	// The producers' record is below the attempt, where nothing is read any more.
	for _, stream := range m.spec.Inputs {
		s := &l.Streams[stream]
		if err := m.Engine.Table().Register(&envelope.Producers{Stream: uint32(stream), Stage: uint32(s.Producer), Tasks: l.Stages[s.Producer].Tasks}); err != nil {
			return err
		}
	}
	if m.Engine.HasState() {
		if m.job.cfg.Checkpoints == nil {
			return fmt.Errorf("protocol %s keeps state outside the log: %w", m.job.cfg.Protocol.Name(), runtime.ErrNoStore)
		}
		if err := m.announce(ctx); err != nil {
			return err
		}
		if err := m.load(ctx); err != nil {
			return fmt.Errorf("restore checkpoint %d: %w", m.emitted, err)
		}
	}
	if last != nil {
		if err := m.Engine.Resume(last); err != nil {
			return err
		}
	}
	m.aligner = progress.NewAligner(m.Engine.Table(), a.Number, m.emitted)
	if err := m.Engine.Ready(m.aligner, a.from); err != nil {
		return err
	}
	if m.spec.Partitions > 0 {
		if m.checkpoints, err = m.job.cfg.Log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tags.Checkpoints(l.Job)}, From: max(a.from, sharedlog.First), BelowFloor: true}); err != nil {
			return err
		}
	}
	m.due = m.Engine.Now().Add(m.interval)
	m.Engine.Reached(observe.CheckpointBegins)
	return nil
}

// Work implements runtime.Committer.
func (m *participant) Work(ctx context.Context, loop func(context.Context) error) error {
	final, end := m.lead(ctx)
	defer end()
	if m.Engine.Ended() {
		return final()
	}
	stop := m.keep(ctx)
	defer stop()
	if err := loop(ctx); err != nil {
		return err
	}
	// The task has done its part of its last checkpoint when the keeper has.
	close(m.puts)
	<-m.kept
	if err := ctx.Err(); err != nil {
		return err
	}
	return final()
}

// fencedIfSuperseded handles an error of a task whose input is trimmed: if a newer attempt has
// replaced this one, it returns ErrFenced, because the successors of a zombie may trim its input.
func (m *participant) fencedIfSuperseded(err error) error {
	if !errors.Is(err, sharedlog.ErrTrimmed) || m.attempt == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), runtime.WriteTimeout)
	defer cancel()
	c, failed := m.job.cfg.Log.Get(ctx, m.attempt.condition.Key)
	if failed != nil || bytes.Equal(c.Value, m.attempt.condition.Value) {
		return err
	}
	return fmt.Errorf("%w: %w", runtime.ErrFenced, err)
}

// writer returns a writer of the task whose appends have effect while the attempt is the job's.
func (m *participant) writer(what string) *sharedlog.Writer {
	name := fmt.Sprintf("%s/%s/%d%s@%d.%016x", m.job.cfg.Layout.Job, m.spec.Name, m.self.Task, what, m.attempt.Number, m.nonce)
	return sharedlog.NewWriter(m.job.cfg.Log, name, m.attempt.condition)
}

// announce appends a record that says that the task starts, and behind which checkpoint. The
// record's LSN is the task's token for the store: it differs in each attempt and rises with later
// attempts. The place of an attempt need not rise, if nothing was appended in between.
func (m *participant) announce(ctx context.Context) (err error) {
	m.joined, err = m.append(ctx, m.part(m.emitted, 0, false))
	return err
}

// part returns the task's part of a checkpoint, as a record for the coordinator.
func (m *participant) part(checkpoint uint64, barrier sharedlog.LSN, ended bool) *envelope.Checkpoint {
	return &envelope.Checkpoint{Job: m.job.cfg.Layout.Job, Number: checkpoint, Attempt: m.attempt.Number, Tasks: []envelope.CheckpointTask{
		{Stage: m.self.Stage, Task: m.self.Task, Barrier: barrier, Ended: ended},
	}}
}

func (m *participant) append(ctx context.Context, part *envelope.Checkpoint) (sharedlog.LSN, error) {
	at, err := m.acks.Append(sharedlog.Record{Tags: []sharedlog.Tag{tags.Acks(part.Job)}, Data: part.Append(nil)}).Wait(ctx)
	if err != nil {
		return 0, runtime.Refused(err, m.attempt.Number)
	}
	return at, nil
}

// Needed implements runtime.Committer: between barriers a task without outputs has no reader to commit for.
func (m *participant) Needed() bool { return m.now > 0 || len(m.spec.Outputs) > 0 }

// Marker implements runtime.Committer.
func (m *participant) Marker(marker *envelope.Marker) []sharedlog.Tag {
	marker.Units = 0 // no restart begins at a marker that is not a barrier
	if marker.Checkpoint = m.now; m.now > 0 {
		return m.barrierTags
	}
	return m.markers
}

// Commit implements runtime.Committer.
func (m *participant) Commit(ctx context.Context, _ uint64, groups [][]sharedlog.Record, _ bool) error {
	for i, group := range groups {
		if err := m.Engine.Append(ctx, group, i == len(groups)-1 && m.now > 0); err != nil {
			return err
		}
	}
	if checkpoint := m.now; checkpoint > 0 && m.deltas != nil {
		ended := m.Engine.Ended()
		m.Engine.Landed(func(at sharedlog.LSN) {
			m.barriers <- barrier{checkpoint, at, ended} // there is room: the keeper has taken the previous one
		})
	}
	return nil
}

// Completed implements runtime.Committer. It does not fold checkpoints of other attempts.
func (m *participant) Completed(at sharedlog.LSN, c *envelope.Checkpoint) {
	if c.Attempt != m.attempt.Number {
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

// Poll implements runtime.Committer: a source emits the barrier of the next checkpoint when the
// previous one is complete and the interval has passed.
func (m *participant) Poll(ctx context.Context) (runtime.Poll, error) {
	if m.complete < m.emitted {
		if err := m.readCheckpoints(); err != nil {
			return 0, err
		}
	}
	do := runtime.PollSource
	if m.drained {
		do = runtime.PollNothing
	}
	if m.complete < m.emitted || m.Engine.Now().Before(m.due) {
		return do, nil
	}
	if m.drained {
		do = runtime.PollEnd
	}
	return do, m.barrier(ctx, m.emitted+1, m.drained)
}

// readCheckpoints reads the coordinator's records.
func (m *participant) readCheckpoints() error {
	b, err := m.checkpoints.TryNext()
	if err != nil {
		return fmt.Errorf("read checkpoints: %w", err)
	}
	var c envelope.Checkpoint
	for i := range b.Entries {
		e := &b.Entries[i]
		if err := c.Parse(e.Data); err != nil {
			return fmt.Errorf("checkpoint at LSN %d: %w", e.LSN, err)
		}
		m.Completed(e.LSN, &c)
		if m.complete == m.emitted {
			m.due = m.Engine.Now().Add(time.Duration(min(c.Rest, uint64(m.interval.Microseconds()))) * time.Microsecond)
		}
	}
	return nil
}

// Wait implements runtime.Committer: a source waits for the time of the next barrier or, if the
// last checkpoint is not complete, for a record of the coordinator.
func (m *participant) Wait(most time.Duration) (time.Duration, <-chan struct{}) {
	if m.complete < m.emitted {
		return most, m.checkpoints.Ready()
	}
	return min(most, max(m.due.Sub(m.Engine.Now()), 0)), nil
}

// SourceEnded implements runtime.Committer: the end itself is announced with a barrier.
func (m *participant) SourceEnded(ctx context.Context) error {
	m.drained = true
	return m.Engine.Commit(ctx)
}

// Advanced implements runtime.Committer: it emits the task's barrier when the barriers of all its
// producers have arrived, and then processes the records that waited for it. Event time has moved
// to the barriers' watermark.
func (m *participant) Advanced(ctx context.Context) error {
	checkpoint, ok := m.aligner.Aligned()
	if !ok {
		return nil
	}
	ended := m.Engine.InputEnded()
	if err := m.barrier(ctx, checkpoint, ended); err != nil || ended {
		return err
	}
	held, err := m.aligner.Pass()
	if err != nil {
		return err
	}
	if err := m.Engine.Deliver(ctx, held); err != nil {
		return err
	}
	return m.Engine.Advance(ctx)
}

// barrier commits the task's part of a checkpoint: its outputs so far, its barrier, and, in the
// store, the changes of its state since the previous one.
func (m *participant) barrier(ctx context.Context, checkpoint uint64, ended bool) error {
	m.now = checkpoint
	m.Engine.End(ended)
	err := m.Engine.Commit(ctx)
	m.now = 0
	m.emitted = checkpoint
	m.Engine.Reached(observe.CheckpointBarrier)
	return err
}
