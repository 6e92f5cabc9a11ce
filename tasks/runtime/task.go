package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/appends"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/gap"
	"tailrace.dev/tailrace/tasks/lead"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/position"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/state"
	"tailrace.dev/tailrace/tasks/status"
	"tailrace.dev/tailrace/tasks/timing"
)

// ErrFenced ends a task whose instance has been replaced: its commits no longer have effect, and it
// must stop.
var ErrFenced = errors.New("the task has been taken over by a newer instance")

// flushesPerCommit times CommitBytes may be flushed between two markers.
const flushesPerCommit = 4

// task is one running instance. Its goroutine owns every field.
type task struct {
	assignment
	cfg       *Config
	status    *status.Status
	asked     requests
	ctx       context.Context // of the instance
	committer Committer       // nil: the task only follows the state of another one
	moves     Mover           // nil: the task's key groups do not move

	chain   exec.Chain
	backend *state.Task // nil: all state is in memory
	tables  []exec.StateTable
	snaps   snapshots

	inst    instance
	in      input
	out     outputs
	log     appends.Appender
	lead    *lead.Lead // nil: not all tasks run here
	pos     position.Position
	promise progress.Promise // of the next marker; its Time is fully advanced to
	number  uint64           // of the newest commit
	dirty   bool             // the next commit has something to contain
	times   timing.Times
	highest int64 // the highest reading of the wall clock that operators have seen
	fail    failing
	counted status.Counted
	scratch scratch
}

// requests is what a task is asked to do.
type requests struct {
	stop  <-chan struct{} // closed when the task is to commit and end
	drain *atomic.Uint64  // the savepoint for which sources are to stop
	enter bool            // a plan is about to make the task one of its stage
}

// input is where a task's input comes from.
type input struct {
	inbox  progress.Inbox // decides what counts
	table  *progress.Table
	reader sharedlog.Reader
	from   sharedlog.LSN     // at which the reader began
	next   sharedlog.LSN     // behind the newest record that was processed
	rest   []sharedlog.Entry // read, and not processed yet
	waits  bool              // Mover.Waits is asked for each record
	// frontier is the LSN below which the reader has returned everything.
	frontier sharedlog.LSN
}

// scratch is reused from record to record, and from commit to commit.
type scratch struct {
	data      envelope.Sections
	section   exec.In
	marker    envelope.Marker // of a producer
	made      envelope.Marker // the task's own
	sections  []envelope.Section
	packer    envelope.Packer
	seen      []envelope.Seen
	positions []exec.Position
	promises  []int64
}

// run runs the task (see the package comment). It returns nil when the task has committed the end
// of its input.
func (t *task) run(ctx context.Context) (err error) {
	defer func() {
		t.log.ProducesNoMore()
		t.committer.Close()
		if t.in.reader != nil {
			err = errors.Join(err, t.in.reader.Close())
		}
		if t.moves != nil {
			err = errors.Join(err, t.moves.Close())
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
	t.status.Began()
	err := t.committer.Start(ctx)
	if err == nil {
		err = t.committer.Work(ctx, t.loop)
	}
	if err == nil {
		t.status.Ended.Store(true)
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
	t.log.ProducesNoMore() // it may still wait for the other tasks of its attempt
	return err
}

// close releases the resources of the chain and its state.
func (t *task) close() (err error) {
	if t.chain != nil {
		err = t.chain.Close()
	}
	if t.backend != nil {
		err = errors.Join(err, t.backend.Close())
	}
	return err
}

// reached tells the status, and the observer, that the instance has reached a step.
func (t *task) reached(s observe.Step) {
	t.status.Reached(s)
	t.cfg.Reached(observe.Event{Step: s, Stage: t.spec.Name, Task: t.index, Instance: t.inst.number})
}

// readLoop consumes the input streams until all their producers have ended.
func (t *task) readLoop(ctx context.Context) error {
	timer := time.NewTimer(timing.TickEvery)
	defer timer.Stop()
	// A predecessor may have stopped between two timers of one watermark.
	if err := t.advance(ctx); err != nil {
		return err
	}
	for !t.promise.Ended {
		if t.stopping() {
			return t.leave(ctx)
		}
		if n := t.asked.drain.Load(); t.in.table.Drained(n) && t.clean() && !t.open() {
			return t.drainedFor(ctx, n)
		}
		t.times.Now = t.cfg.Clock()
		if t.moves != nil {
			if err := t.moves.Turn(ctx); err != nil {
				return err
			}
			if t.promise.Ended {
				break
			}
		}
		n, err := t.batch(ctx)
		if err != nil {
			return err
		}
		if t.promise.Ended {
			break // a task that has left its stage makes no further marker
		}
		idle := n == 0
		t.status.CaughtUp.Store(idle)
		if idle && t.status.FirstCaughtUp.Load() == 0 {
			t.reached(observe.CaughtUp)
		}
		if err := t.housekeeping(ctx, idle); err != nil {
			return err
		}
		if !idle || t.promise.Ended {
			continue
		}
		timer.Reset(t.times.Wait(idle, t.dirty))
		more := t.in.reader.Ready()
		if len(t.in.rest) > 0 {
			more = nil // it waits
		}
		moved, given := t.moved()
		t.status.Sleep()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.asked.stop:
		case <-more:
		case <-moved:
		case <-given:
		case <-t.log.Oldest():
		case <-timer.C:
		}
		t.status.Wake(more == nil)
	}
	return t.committer.Drain(ctx)
}

// batch processes what has been read, or a new batch, up to a record that must wait. It returns how
// many records it has processed.
func (t *task) batch(ctx context.Context) (n int, err error) {
	if len(t.in.rest) == 0 {
		b, err := t.in.reader.TryNext()
		if err != nil {
			return 0, fmt.Errorf("read input: %w", err)
		}
		t.in.rest, t.in.frontier = b.Entries, b.Frontier
	}
	for ; len(t.in.rest) > 0 && !t.promise.Ended; n++ {
		if err := ctx.Err(); err != nil {
			return n, err // a batch can take long, where state is on disk
		}
		e := &t.in.rest[0]
		wait, err := t.waits(e)
		if err == nil && wait {
			return n, nil
		}
		t.in.rest, t.in.next = t.in.rest[1:], e.LSN+1
		if err == nil {
			err = t.entry(ctx, e)
		}
		if err != nil {
			return n, fmt.Errorf("record at LSN %d: %w", e.LSN, t.explained(ctx, e.LSN, err))
		}
	}
	t.status.Through.Store(uint64(t.in.frontier))
	return n, nil
}

// reread opens the input anew, with the tags of the groups that the task now has or waits for.
func (t *task) reread(from sharedlog.LSN) (err error) {
	if err := t.in.reader.Close(); err != nil {
		return err
	}
	t.in.rest, t.in.from, t.in.next = nil, max(from, sharedlog.First), from
	t.in.reader, err = t.cfg.Log.NewReader(sharedlog.ReaderOptions{Tags: t.inputTags(t.cfg.Layout), From: t.in.from, BelowFloor: true})
	return err
}

// moved returns what receives a token when the task's mover may have something to do.
func (t *task) moved() (a, b <-chan struct{}) {
	if t.moves == nil {
		return nil, nil
	}
	return t.moves.Ready()
}

// explained adds to the error of a gap in the input what an operator needs to know of it.
func (t *task) explained(ctx context.Context, at sharedlog.LSN, err error) error {
	r := gap.Reading{Log: t.cfg.Log, Layout: t.cfg.Layout, Tags: t.inputTags(t.cfg.Layout), From: t.in.from, Position: t.in.inbox.Position(), Low: t.in.inbox.Low()}
	return r.Explain(ctx, at, err)
}

// housekeeping is the work between two batches of input: outcomes, ticks, and the commit or flush
// that is due.
func (t *task) housekeeping(ctx context.Context, idle bool) error {
	if err := t.log.Collect(); err != nil {
		return err
	}
	t.consumed() // including records that have stopped waiting since the last one
	t.times.Now = t.cfg.Clock()
	if t.times.Now.Sub(t.times.Tick) >= timing.TickEvery {
		if err := t.tick(ctx); err != nil {
			return err
		}
		t.dirty = t.dirty || t.out.pendingBytes() > 0 || t.unnamed()
	}
	if !t.dirty {
		return nil
	}
	commit, flush := t.times.Intervals(idle)
	if t.times.Now.Sub(t.times.Commit) >= commit {
		return t.commit(ctx)
	}
	if t.times.Flushes && t.times.Now.Sub(t.times.Flush) >= flush {
		return t.flush(ctx)
	}
	return nil
}

// tick fires the wall-clock timers that are due, committing between two of them if their output is
// too much for one commit.
func (t *task) tick(ctx context.Context) error {
	t.times.Tick = t.times.Now
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
	timer := time.NewTimer(timing.TickEvery)
	defer timer.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if t.stopping() {
			return t.leave(ctx)
		}
		if n := t.asked.drain.Load(); n > 0 && t.clean() && !t.open() {
			return t.drainedFor(ctx, n)
		}
		var r exec.PollResult
		t.times.Now = t.cfg.Clock()
		if t.moves != nil {
			if err := t.moves.Turn(ctx); err != nil {
				return err
			}
			if t.promise.Ended { // it has left its stage
				return t.committer.Drain(ctx)
			}
		}
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
			if t.promise.Ended {
				return t.committer.Drain(ctx)
			}
		}
		if err := t.housekeeping(ctx, false); err != nil {
			return err
		}
		if r.Items > 0 {
			continue
		}
		sleep := t.times.Wait(false, t.dirty)
		switch {
		case drained:
		case held:
			sleep = min(sleep, time.Millisecond)
		case r.Ended: // it waits for partitions, or for a task that takes some
		case !r.Idle:
			sleep = min(sleep, max(time.Duration(r.Due-t.times.Now.UnixMilli())*time.Millisecond, 0))
		}
		sleep, told := t.committer.Wait(sleep)
		moved, given := t.moved()
		timer.Reset(sleep)
		t.status.Sleep()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.asked.stop:
		case <-t.log.Oldest():
		case <-told:
		case <-moved:
		case <-given:
		case <-timer.C:
		}
		t.status.Wake(false)
	}
}

// poll reads a batch from the source and processes all of it.
func (t *task) poll(ctx context.Context) (exec.PollResult, error) {
	for items := 0; ; {
		r, err := t.pollSome(t.out.step)
		if err != nil {
			return r, err
		}
		items += r.Items
		t.dirty = t.dirty || r.Items > 0
		t.status.ItemsIn.Add(uint64(r.Items))
		if r.All {
			r.Items = items
			t.out.pace(t.pendingChanges())
			return r, nil
		}
		if err := t.between(ctx); err != nil {
			return r, err
		}
	}
}

func (t *task) stopping() bool {
	select {
	case <-t.asked.stop:
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

// clean reports whether the task is at a clean point: its position is behind a record, and event time
// is as far as its input allows. Commits, also the last one before a stop, fall between any two units
// of work; what other tasks, or another program, continue from falls at a clean point only.
func (t *task) clean() bool {
	if !t.pos.Behind() || t.spec.Partitions > 0 {
		return t.pos.Behind()
	}
	time, _ := t.capped(t.in.table.Lowest())
	return t.promise.Time >= time
}

// drainedFor ends the task with a marker that says that it has stopped for savepoint n and that
// everything below is processed. Sources stop when they are asked to; a task that reads streams
// stops when all of its producers have, so that nothing is in flight in between. Consumers learn it
// from the marker, like everything else.
func (t *task) drainedFor(ctx context.Context, n uint64) error {
	t.promise.Drained, t.times.Now = n, t.cfg.Clock()
	if err := t.commit(ctx); err != nil {
		return err
	}
	t.reached(observe.SavepointDraining)
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
	for i := range t.log.Ahead {
		if t.log.Ahead[i].Ahead() >= t.cfg.Lead {
			return true
		}
	}
	return false
}

// polled handles what a poll says about event time and about the end.
func (t *task) polled(ctx context.Context, r exec.PollResult) error {
	w := max(r.Watermark, t.promise.Time)
	if r.Ended {
		w = exec.MaxTime
	}
	if t.moves != nil {
		w, r.Idle = t.moves.Cap(w, r.Idle)
	}
	if err := t.advanceTo(ctx, w); err != nil {
		return err
	}
	if r.Idle != t.promise.Idle {
		t.promise.Idle, t.dirty = r.Idle, true
	}
	if r.Items == 0 && t.times.Now.Sub(t.times.Commit) >= stillInterval {
		t.dirty = true
	}
	if r.Ended && !t.open() {
		return t.committer.SourceEnded(ctx)
	}
	return t.forced(ctx)
}

// Task, Groups … implement exec.Runtime for the chain.

func (t *task) Task() (index, of int) { return t.index, t.of }
func (t *task) Groups() int           { return t.cfg.Layout.Stages[t.stage].Groups }
func (t *task) hashed() int           { return t.cfg.Layout.Stages[t.stage].Hashed() }
func (t *task) OutputGroups(i int) int {
	s := &t.cfg.Layout.Streams[t.spec.Outputs[i]]
	return s.Groups - s.Slots
}
func (t *task) Output(i int) *exec.Output { return t.out.streams[i] }
func (t *task) Home(table int) exec.Home {
	if t.backend == nil {
		return nil
	}
	return t.backend.Table(table)
}

// Promises implements exec.Runtime. While key groups are pending, no promise passes what the task may
// promise itself: their items below the plan are not late.
func (t *task) Promises(input int) []int64 {
	stream := uint32(t.spec.Inputs[input])
	t.scratch.promises = t.in.table.Promises(t.scratch.promises[:0], stream)
	if t.open() {
		most, _ := t.capped(t.in.table.Lowest())
		for i, w := range t.scratch.promises {
			t.scratch.promises[i] = min(w, most)
		}
	}
	return t.scratch.promises
}

func (t *task) Now() int64                 { return t.wall() }
func (t *task) Arrived(time int64)         { t.status.Arrived(t.cfg.Clock().UnixMilli() - time) }
func (t *task) Late(n int)                 { t.counted.Late += uint64(n) }
func (t *task) Count(name string, n int64) { t.counted.Count(name, n) }

// Meter implements exec.Meters.
func (t *task) Meter(m *exec.Metric) { t.status.Meter(m) }
