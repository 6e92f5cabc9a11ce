package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/state"
)

// ErrFenced ends a task whose instance has been replaced: its commits no longer have effect, and it
// must stop.
var ErrFenced = errors.New("the task has been taken over by a newer instance")

// flushesPerCommit times CommitBytes may be flushed between two markers.
const flushesPerCommit = 4

// tickEvery is the interval at which a chain receives the wall clock.
const tickEvery = 100 * time.Millisecond

// task is one running instance. Its goroutine owns every field.
type task struct {
	cfg    *Config
	spec   *exec.StageSpec
	stage  int
	index  int
	of     int
	owned  []int
	isMine []bool // by key group
	input  []int  // stream -> input of the chain, -1 if not consumed
	status *Status
	stop   <-chan struct{} // closed when the task is to commit and end

	chain     exec.Chain
	home      *state.Task // nil: all state is in memory
	tables    []exec.StateTable
	outputs   []*exec.Output
	changes   *exec.Output
	rows      rows
	inbox     progress.Inbox
	table     *progress.Table
	reader    sharedlog.Reader
	writer    *sharedlog.Writer
	inflight  []flight
	appends   uint64
	from      sharedlog.LSN // LSN at which the reader began
	lead      *lead         // nil: not all tasks run here
	ahead     []outputLead
	committer Committer

	instance, nonce uint64
	condition       sharedlog.Condition // holds as long as this is the only instance
	place           sharedlog.LSN       // where this instance became the only one
	began           time.Time
	number          uint64 // of the newest commit
	watermark       int64  // own: fully advanced to, promised in markers
	idle, ended     bool
	dirty           bool // the next commit has something to contain
	now             time.Time
	clock           int64 // the highest reading that operators have seen (wall)
	lastCommit      time.Time
	lastFlush       time.Time
	commitEvery     time.Duration
	lastTick        time.Time
	flushed         int           // bytes of output flushed since the last commit
	parts           bool          // some of it is a part of the next commit
	partGroups      map[int]bool  // key groups of the parts of this commit's changes
	units           uint64        // processed, of the record at the position or of the timers that are due
	skipAt          sharedlog.LSN // the record of which earlier instances have processed skip items
	skip            int
	step            int // how many units the next call processes
	madeBefore      int // of made
	ctx             context.Context
	doing           doing
	at              sharedlog.LSN // the record that is being processed, or that makes others count
	record          sharedlog.LSN // the record whose items are being processed: at, or one that has waited for it
	suspect         *suspect      // where an earlier instance failed
	passed          bool          // the failing item or timer has been skipped
	skipped         uint64        // items skipped, by all instances
	skippedBefore   uint64        // by earlier instances
	futile          int           // how many earlier instances have skipped nothing
	warnedSkipped   time.Time
	marks           []exec.Mark
	dead            int            // index of the output for dead letters, -1: there is none
	snapshot, kept  sharedlog.LSN  // as in the newest marker
	warm            sharedlog.LSN  // the state came from a standby: it has all changes below
	results         bool           // it has made output
	drain           *atomic.Uint64 // the savepoint for which sources are to stop
	drained         uint64         // the savepoint for which this task has stopped
	counted         counted

	// Scratch, reused.
	in        envelope.Sections
	section   exec.In
	inMarker  envelope.Marker
	marked    envelope.Marker
	sections  []envelope.Section
	packer    envelope.Packer
	seen      []envelope.Seen
	positions []exec.Position
}

// run runs the task (see the package comment). It returns nil when the task has committed the end
// of its input.
func (t *task) run(ctx context.Context) (err error) {
	defer func() {
		t.producesNoMore()
		t.committer.Close()
		if t.reader != nil {
			err = errors.Join(err, t.reader.Close())
		}
		err = errors.Join(err, t.close())
	}()
	return t.committer.Run(ctx, t.live)
}

// live is run without what the committer does around it; it turns a panic of the job's code into an
// error.
func (t *task) live(ctx context.Context) (err error) {
	t.ctx = ctx
	return t.guarded(func() error { return t.work(ctx) })
}

func (t *task) work(ctx context.Context) error {
	t.began = t.cfg.Clock()
	err := t.committer.Start(ctx)
	if err == nil {
		err = t.committer.Work(ctx, t.loop)
	}
	if err == nil {
		t.status.ended.Store(true)
	}
	return err
}

// loop processes the input until its end is committed.
func (t *task) loop(ctx context.Context) (err error) {
	defer t.snapshots(ctx)()
	if t.spec.Partitions > 0 {
		err = t.pollLoop(ctx)
	} else {
		err = t.readLoop(ctx)
	}
	t.producesNoMore() // it may still wait for the other tasks of its attempt
	return err
}

// close releases the resources of the chain and its state.
func (t *task) close() (err error) {
	if t.chain != nil {
		err = t.chain.Close()
	}
	if t.home != nil {
		err = errors.Join(err, t.home.Close())
	}
	return err
}

// readLoop consumes the input streams until all their producers have ended.
func (t *task) readLoop(ctx context.Context) error {
	timer := time.NewTimer(tickEvery)
	defer timer.Stop()
	// A predecessor may have stopped between two timers of one watermark.
	if err := t.advance(ctx); err != nil {
		return err
	}
	for !t.ended {
		if t.stopping() {
			return t.leave(ctx)
		}
		if n := t.drain.Load(); t.table.Drained(n) {
			return t.drainedFor(ctx, n)
		}
		t.now = t.cfg.Clock()
		batch, err := t.reader.TryNext()
		if err != nil {
			return fmt.Errorf("read input: %w", err)
		}
		for i := range batch.Entries {
			if err := ctx.Err(); err != nil {
				return err // a batch can take long, where state is on disk
			}
			if err := t.entry(ctx, &batch.Entries[i]); err != nil {
				return fmt.Errorf("record at LSN %d: %w", batch.Entries[i].LSN, t.explained(ctx, batch.Entries[i].LSN, err))
			}
		}
		idle := len(batch.Entries) == 0
		t.status.caughtUp.Store(idle)
		if idle && t.status.firstCaughtUp.Load() == 0 {
			t.status.firstCaughtUp.Store(max(t.now.Sub(t.began).Microseconds(), 1))
		}
		if err := t.housekeeping(ctx, idle); err != nil {
			return err
		}
		if !idle || t.ended {
			continue
		}
		timer.Reset(t.wait(idle))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.stop:
		case <-t.reader.Ready():
		case <-t.oldest():
		case <-timer.C:
		}
	}
	return t.committer.Drain(ctx)
}

// oldest is ready when the oldest append in flight has been decided.
func (t *task) oldest() <-chan struct{} {
	if len(t.inflight) == 0 {
		return nil
	}
	return t.inflight[0].pending.Done()
}

// wait returns how long the task may sleep before it has work to do by the clock.
func (t *task) wait(idle bool) time.Duration {
	next := t.lastTick.Add(tickEvery)
	if t.dirty {
		commit, flush := t.intervals(idle)
		if due := t.lastCommit.Add(commit); due.Before(next) {
			next = due
		}
		if due := t.lastFlush.Add(flush); t.cfg.Protocol.Capabilities().Flushes && due.Before(next) {
			next = due
		}
	}
	return max(next.Sub(t.now), 0)
}

// idleShare is the part of an interval after which a task that has consumed all its input appends
// its outputs: no further input could share their append, so waiting only delays them. It is not
// 1/∞, because each of P producers that does so wakes P consumers, and each of those … : the number
// of a stage's appends must not grow with a power of the parallelism.
const idleShare = 8

// intervals returns how long after the last one a commit and a flush are due.
func (t *task) intervals(idle bool) (commit, flush time.Duration) {
	commit, flush = t.commitEvery, t.cfg.FlushInterval
	flushes := t.cfg.Protocol.Capabilities().Flushes
	switch {
	case t.spec.Partitions > 0 && !flushes:
		commit = flush // a source's flush batches items that arrive one by one
	case t.spec.Partitions > 0 || !idle:
	case flushes:
		flush /= idleShare // a marker costs more than a flush and keeps its interval
	default:
		commit /= idleShare
	}
	return commit, flush
}

// housekeeping is the work between two batches of input: outcomes, ticks, and the commit or flush
// that is due.
func (t *task) housekeeping(ctx context.Context, idle bool) error {
	if err := t.collect(); err != nil {
		return err
	}
	t.consumed() // including records that have stopped waiting since the last one
	t.now = t.cfg.Clock()
	if t.now.Sub(t.lastTick) >= tickEvery {
		if err := t.tick(ctx); err != nil {
			return err
		}
		t.dirty = t.dirty || t.pendingBytes() > 0 || t.unnamed()
	}
	if !t.dirty {
		return nil
	}
	commit, flush := t.intervals(idle)
	if t.now.Sub(t.lastCommit) >= commit {
		return t.commit(ctx)
	}
	if t.cfg.Protocol.Capabilities().Flushes && t.now.Sub(t.lastFlush) >= flush {
		return t.flush(ctx)
	}
	return nil
}

// tick fires the wall-clock timers that are due, committing between two of them if their output is
// too much for one commit.
func (t *task) tick(ctx context.Context) error {
	t.lastTick = t.now
	now := t.wall()
	for {
		did, err := t.fire(now, func(b exec.Budget) (exec.Did, error) { return t.chain.Tick(now, b) })
		if err != nil {
			return err
		}
		t.dirty = t.dirty || did.Units > 0
		if did.All {
			return nil
		}
		if err := t.between(ctx); err != nil {
			return err
		}
	}
}

// pollLoop reads a source until it ends.
func (t *task) pollLoop(ctx context.Context) error {
	timer := time.NewTimer(tickEvery)
	defer timer.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if t.stopping() {
			return t.leave(ctx)
		}
		if n := t.drain.Load(); n > 0 {
			return t.drainedFor(ctx, n)
		}
		var r exec.PollResult
		t.now = t.cfg.Clock()
		next, err := t.committer.Poll(ctx)
		if err != nil {
			return err
		}
		if next == PollEnd {
			return t.committer.Drain(ctx)
		}
		held, drained := t.tooFarAhead(), next == PollNothing
		if !held && !drained {
			if r, err = t.poll(ctx); err != nil {
				return err
			}
			if err := t.polled(ctx, r); err != nil {
				return err
			}
			if t.ended {
				return t.committer.Drain(ctx)
			}
		}
		if err := t.housekeeping(ctx, false); err != nil {
			return err
		}
		if r.Items > 0 {
			continue
		}
		sleep := t.wait(false)
		switch {
		case drained:
		case held:
			sleep = min(sleep, time.Millisecond)
		case !r.Idle:
			sleep = min(sleep, max(time.Duration(r.Due-t.now.UnixMilli())*time.Millisecond, 0))
		}
		sleep, told := t.committer.Wait(sleep)
		timer.Reset(sleep)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.stop:
		case <-t.oldest():
		case <-told:
		case <-timer.C:
		}
	}
}

// poll reads a batch from the source and processes all of it.
func (t *task) poll(ctx context.Context) (exec.PollResult, error) {
	for items := 0; ; {
		r, err := t.pollSome(t.step)
		if err != nil {
			return r, err
		}
		items += r.Items
		t.dirty = t.dirty || r.Items > 0
		t.status.itemsIn.Add(uint64(r.Items))
		if r.All {
			r.Items = items
			t.pace()
			return r, nil
		}
		if err := t.between(ctx); err != nil {
			return r, err
		}
	}
}

func (t *task) stopping() bool {
	select {
	case <-t.stop:
		return true
	default:
		return false
	}
}

// leave commits the work so far, so that a successor repeats nothing, and ends.
func (t *task) leave(ctx context.Context) error {
	if t.dirty {
		if err := t.commit(ctx); err != nil {
			return err
		}
	}
	if err := t.committer.Drain(ctx); err != nil {
		return err
	}
	return ErrStopped
}

// drainedFor ends the task with a marker that says that it has stopped for savepoint n and that
// everything below is processed. Sources stop when they are asked to; a task that reads streams
// stops when all of its producers have, so that nothing is in flight in between. Consumers learn it
// from the marker, like everything else.
func (t *task) drainedFor(ctx context.Context, n uint64) error {
	t.drained, t.now = n, t.cfg.Clock()
	if err := t.commit(ctx); err != nil {
		return err
	}
	crash.Here(crash.SavepointDraining)
	if err := t.committer.Drain(ctx); err != nil {
		return err
	}
	return ErrDrained
}

// tooFarAhead reports whether the source must wait for its consumers.
func (t *task) tooFarAhead() bool {
	if t.cfg.Lead <= 0 || t.lead == nil {
		return false
	}
	for i := range t.ahead {
		if t.ahead[i].ahead() >= t.cfg.Lead {
			return true
		}
	}
	return false
}

// polled handles what a poll says about event time and about the end.
func (t *task) polled(ctx context.Context, r exec.PollResult) error {
	w := max(r.Watermark, t.watermark)
	if r.Ended {
		w = exec.MaxTime
	}
	if err := t.advanceTo(ctx, w); err != nil {
		return err
	}
	if r.Idle != t.idle {
		t.idle, t.dirty = r.Idle, true
	}
	if r.Items == 0 && t.now.Sub(t.lastCommit) >= stillInterval {
		t.dirty = true
	}
	if r.Ended {
		return t.committer.SourceEnded(ctx)
	}
	return t.forced(ctx)
}

// Task, Groups … implement exec.Runtime for the chain.

func (t *task) Task() (index, of int)     { return t.index, t.of }
func (t *task) Groups() int               { return t.cfg.Layout.Stages[t.stage].Groups }
func (t *task) OutputGroups(i int) int    { return t.cfg.Layout.Streams[t.spec.Outputs[i]].Groups }
func (t *task) Output(i int) *exec.Output { return t.outputs[i] }
func (t *task) Home(table int) exec.Home {
	if t.home == nil {
		return nil
	}
	return t.home.Table(table)
}
func (t *task) Now() int64                 { return t.wall() }
func (t *task) Arrived(time int64)         { t.status.arrived(t.cfg.Clock().UnixMilli() - time) }
func (t *task) Late(n int)                 { t.counted.late += uint64(n) }
func (t *task) Count(name string, n int64) { t.counted.count(name, n) }
