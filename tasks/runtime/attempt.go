package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/tags"
)

// attempt is one life of a job whose tasks commit together (progress.Together): from the
// place where it became the only one until one of its tasks fails. Nothing of older
// attempts has effect above that place, so the newest checkpoint below it is the one that
// everybody goes on from.
type attempt struct {
	cfg           *Config
	number, nonce uint64
	condition     sharedlog.Condition
	began         time.Time
	place         sharedlog.LSN
	last          *envelope.Checkpoint // complete, nil: there is none

	parts []envelope.CheckpointTask // all that take part
	acks  chan ack
	// durable is the newest checkpoint that is complete and cannot be lost.
	durable atomic.Uint64

	mu      sync.Mutex
	asked   uint64
	changed chan struct{} // closed when asked changes
}

// ack says that a task has done its part of a checkpoint.
type ack struct {
	checkpoint uint64
	task       envelope.CheckpointTask
}

// together reports whether a stage's tasks take part in checkpoints. Sinks do not: they
// read from outside.
func together(cfg *Config, spec *operators.StageSpec) (progress.Together, bool) {
	p, ok := cfg.Protocol.(progress.Together)
	return p, ok && !spec.Sink
}

// newAttempt begins an attempt: whoever had the job has it no more.
func newAttempt(ctx context.Context, cfg *Config) (*attempt, error) {
	a := &attempt{cfg: cfg, nonce: Nonce(), began: cfg.Clock(), changed: make(chan struct{})}
	for s := range cfg.Layout.Stages {
		if _, ok := together(cfg, &cfg.Layout.Plan.Stages[s]); !ok {
			continue
		}
		for i := range cfg.Layout.Stages[s].Tasks {
			a.parts = append(a.parts, envelope.CheckpointTask{Stage: uint32(s), Task: uint32(i)})
		}
	}
	a.acks = make(chan ack, len(a.parts))
	key := tags.AttemptKey(cfg.Layout.Job)
	var err error
	if a.number, a.condition, a.place, err = takeOver(ctx, cfg.Log, key, a.nonce); err != nil {
		return nil, fmt.Errorf("begin an attempt of job %q: %w", cfg.Layout.Job, err)
	}
	crash.Here(crash.CheckpointAttempt)
	a.last, _, err = lastCheckpoint(ctx, cfg.Log, cfg.Layout.Job, a.place)
	if err != nil {
		return nil, err
	}
	if a.last != nil {
		a.asked = a.last.Number
	}
	return a, nil
}

// lastCheckpoint returns the newest complete checkpoint below a place, and where its
// record stands; nil if there is none.
func lastCheckpoint(ctx context.Context, log sharedlog.Log, job string, below sharedlog.LSN) (*envelope.Checkpoint, sharedlog.LSN, error) {
	e, ok, err := log.Last(ctx, tags.Checkpoints(job), below)
	if err != nil || !ok {
		return nil, 0, err
	}
	c := new(envelope.Checkpoint)
	if err := c.Parse(e.Data); err != nil {
		return nil, 0, fmt.Errorf("checkpoint at LSN %d: %w", e.LSN, err)
	}
	return c, e.LSN, nil
}

// barrierOf reads the marker with which a task committed its part of a checkpoint.
func barrierOf(ctx context.Context, log sharedlog.Log, l *Layout, part envelope.CheckpointTask) (*envelope.Marker, error) {
	tag := tags.Task(l.Job, l.Plan.Stages[part.Stage].Name, int(part.Task))
	e, ok, err := log.Last(ctx, tag, part.Barrier+1)
	if err != nil {
		return nil, err
	}
	if !ok || e.LSN != part.Barrier {
		return nil, fmt.Errorf("the log has no barrier of stage %q, task %d at LSN %d: %w", l.Plan.Stages[part.Stage].Name, part.Task, part.Barrier, sharedlog.ErrCorrupt)
	}
	m := new(envelope.Marker)
	if err := m.Parse(e.Data); err != nil {
		return nil, fmt.Errorf("marker at LSN %d: %w", e.LSN, err)
	}
	return m, nil
}

// asks returns the newest checkpoint that sources have been asked for, and a channel that
// is closed when there is a newer one.
func (a *attempt) asks() (checkpoint uint64, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked, a.changed
}

func (a *attempt) ask(checkpoint uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = checkpoint
	close(a.changed)
	a.changed = make(chan struct{})
}

// coordinate makes checkpoints, one each interval, until the job's last is complete or
// ctx ends. It returns ErrFenced if another attempt has begun.
func (a *attempt) coordinate(ctx context.Context) error {
	l := a.cfg.Layout
	to := []sharedlog.Tag{tags.Checkpoints(l.Job)}
	for i := range l.Streams {
		to = append(to, l.Streams[i].All)
	}
	c := progress.NewCoordinator(l.Job, a.number, a.parts, a.last)
	w := sharedlog.NewWriter(a.cfg.Log, fmt.Sprintf("%s/coordinator@%d.%016x", l.Job, a.number, a.nonce), a.condition)
	type complete struct {
		number uint64
		at     sharedlog.LSN
	}
	var news []complete // complete, and not known to be durable
	timer := time.NewTimer(a.cfg.CommitInterval)
	defer timer.Stop()
	begun := time.Now()
	for !c.Final() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			if n, ok := c.Begin(); ok {
				begun = time.Now()
				a.ask(n)
			}
		case k := <-a.acks:
			crash.Here(crash.CheckpointAcked)
			record, err := c.Ack(k.checkpoint, k.task)
			if err != nil {
				return err
			}
			if record == nil {
				continue
			}
			crash.Here(crash.CheckpointDecided)
			at, err := w.Append(sharedlog.Record{Tags: to, Data: record.Append(nil)}).Wait(ctx)
			if err != nil {
				return a.refused(err)
			}
			crash.Here(crash.CheckpointComplete)
			c.Completed()
			news = append(news, complete{record.Number, at})
			timer.Reset(max(a.cfg.CommitInterval-time.Since(begun), 0))
		}
		for durable := a.cfg.Log.Stats().Durable; len(news) > 0 && news[0].at < durable; news = news[1:] {
			a.durable.Store(news[0].number)
		}
	}
	return nil
}

func (a *attempt) refused(err error) error {
	if sharedlog.KindOf(err) == sharedlog.KindConditionFailed {
		return fmt.Errorf("%w (this was attempt %d of the job)", ErrFenced, a.number)
	}
	return fmt.Errorf("append: %w", err)
}

// errTogether says why one task of an attempt is not begun alone.
var errTogether = errors.New("the tasks of this protocol are begun all together, by the process that runs the job (tasks.Start)")
