package runtime

import (
	"context"
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/status"
	"tailrace.dev/tailrace/tasks/tags"
)

// Engine is an instance of a task as its Committer sees it: chain, inbox, outputs and state, without
// a protocol. Only the task's goroutine may use it, except for the methods that say otherwise.
type Engine struct{ t *task }

// Config returns the configuration of the job's tasks. Safe for concurrent use.
func (e *Engine) Config() *Config { return e.t.cfg }

// Stage returns the task's stage and its index in the plan. Safe for concurrent use.
func (e *Engine) Stage() (spec *exec.StageSpec, index int) { return e.t.spec, e.t.stage }

// Index returns the task's number in its stage. Safe for concurrent use.
func (e *Engine) Index() int { return e.t.index }

// Nonce returns the bits that identify the instance. Safe for concurrent use.
func (e *Engine) Nonce() uint64 { return e.t.inst.nonce }

// Owned returns the task's key groups, ascending, and how many groups the stage has.
func (e *Engine) Owned() (groups []int, of int) { return e.t.owned, len(e.t.from) }

// Instance returns the number of the instance, which Start or Begin has set. Safe for concurrent use
// afterwards.
func (e *Engine) Instance() uint64 { return e.t.inst.number }

// OutputTags returns new tags for markers: one for each output.
func (e *Engine) OutputTags() (to []sharedlog.Tag) {
	for _, stream := range e.t.spec.Outputs {
		to = append(to, e.t.cfg.Layout.Streams[stream].All)
	}
	return to
}

// TaskTag returns the tag of the task's log.
func (e *Engine) TaskTag() sharedlog.Tag {
	return tags.Task(e.t.cfg.Layout.Job, e.t.spec.Name, e.t.index)
}

// Stopping is closed when the task is asked to commit and to end. Safe for concurrent use.
func (e *Engine) Stopping() <-chan struct{} { return e.t.asked.stop }

// Start starts an instance that replaces its predecessor by itself: it is the only one from a place
// in the log on. register makes it known to others, and returns the place below which everything is
// decided that predecessors have left.
func (e *Engine) Start(ctx context.Context, register func(ctx context.Context, place sharedlog.LSN) (sharedlog.LSN, error)) error {
	return e.t.start(ctx, register)
}

// Begin makes the instance the task's: it has a number, and a writer whose appends have effect
// while it is the task's.
func (e *Engine) Begin(instance uint64, w *sharedlog.Writer) {
	e.t.inst.number, e.t.log.Writer = instance, w
	e.t.reached(observe.RecoveryFenced)
}

// Inherit takes over the counts of the marker from which the instance resumes, nil if there is
// none.
func (e *Engine) Inherit(last *envelope.Marker) { e.t.inherit(last) }

// Restore opens the chain and sets the task to what a marker committed, nil if there is none,
// except its state.
func (e *Engine) Restore(last *envelope.Marker) error {
	if err := e.t.chain.Open(e.t.owned); err != nil || last == nil {
		return err
	}
	e.t.restoreTime(last)
	return nil
}

// Resume seeks the source, or the sinks, to the positions in a marker.
func (e *Engine) Resume(m *envelope.Marker) error { return e.t.resume(m) }

// Ready sets the inbox, with which the task reads its input from a position on, and prepares the
// task, which has its state, to process it.
func (e *Engine) Ready(inbox progress.Inbox, from sharedlog.LSN) error {
	e.t.in.inbox = inbox
	e.t.in.inbox.Limit(e.t.cfg.HeldMemory)
	err := e.t.ready(from)
	e.t.times.Commit = e.t.times.Now
	return err
}

// CommitAsFlush makes the task commit when a flush would be due.
func (e *Engine) CommitAsFlush() { e.t.times.CommitEvery = e.t.times.FlushEvery }

// Table returns the table of the task's producers.
func (e *Engine) Table() *progress.Table { return e.t.in.table }

// HasState reports whether the task has tables.
func (e *Engine) HasState() bool { return len(e.t.tables) > 0 }

// Load reads the task's state from a store and makes the task, with this token, the only writer of
// its key groups there. It returns, by key group, up to where the store had it.
func (e *Engine) Load(ctx context.Context, store checkpoint.Store, token sharedlog.LSN) (byGroup []sharedlog.LSN, err error) {
	at, err := e.t.loadFrom(ctx, store, e.t.owned, token)
	if err != nil {
		return nil, err
	}
	byGroup = make([]sharedlog.LSN, len(e.t.from))
	for i, g := range e.t.owned {
		byGroup[g] = at[i]
	}
	e.t.reached(observe.RecoveryLoaded)
	return byGroup, nil
}

// Apply applies logged changes of a key group to the state.
func (e *Engine) Apply(group int, changes []byte) error {
	n, err := e.t.applyItems(group, changes)
	e.t.status.Replayed.Add(uint64(n))
	return err
}

// Reached tells the observer that the instance, which has its number, has reached a step. Safe for
// concurrent use.
func (e *Engine) Reached(s observe.Step) { e.t.reached(s) }

// Moves counts how the state of key groups comes to the task. Safe for concurrent use.
func (e *Engine) Moves() *status.Moves { return &e.t.status.Moves }

// Now returns the time at which the task last looked at the clock.
func (e *Engine) Now() time.Time { return e.t.times.Now }

// Ended reports whether the task has ended.
func (e *Engine) Ended() bool { return e.t.promise.Ended }

// End sets whether the task ends with the next marker.
func (e *Engine) End(ended bool) { e.t.promise.Ended = ended }

// InputEnded reports whether all producers have ended, the last timers have fired, and no key groups
// are on their way to or from the task.
func (e *Engine) InputEnded() bool {
	return e.t.promise.Time == exec.MaxTime && e.t.in.table.Ended() && !e.t.open()
}

// Deliver processes held records that count now.
func (e *Engine) Deliver(ctx context.Context, held []progress.Held) error {
	return e.t.count(ctx, held)
}

// Advance moves event time as far as the input's markers allow. That of a source moves with its next
// poll.
func (e *Engine) Advance(ctx context.Context) error {
	if e.t.spec.Partitions > 0 {
		return nil
	}
	return e.t.advance(ctx)
}

// Commit makes a commit.
func (e *Engine) Commit(ctx context.Context) error {
	e.t.times.Now = e.t.cfg.Clock()
	return e.t.commit(ctx)
}

// LogChanges returns the record of the net state changes since the last commit.
func (e *Engine) LogChanges() ([]sharedlog.Record, error) { return e.t.takeChanges() }

// DropChanges drops the state changes since the last commit.
func (e *Engine) DropChanges() {
	for i, table := range e.t.tables {
		table.Changes(i, nil) // or what was deleted would stay for ever
	}
}

// NetChanges returns the net state changes since the last call, by key group, for the caller to
// keep.
func (e *Engine) NetChanges() *exec.Output {
	t := e.t
	t.collectChanges()
	taken := t.out.changes
	t.out.changes = exec.NewOutput(len(t.from))
	return taken
}

// Append starts the append of one group; commits says that a commit ends with it. If too many
// appends are in flight, it waits first.
func (e *Engine) Append(ctx context.Context, group []sharedlog.Record, commits bool) error {
	return e.t.log.Append(ctx, group, commits)
}

// Landed adds to what is called, by the task, when the newest append is acknowledged. at is the LSN
// of its last record.
func (e *Engine) Landed(f func(at sharedlog.LSN)) { e.t.log.Landed(f) }

// Acknowledged waits until everything appended is acknowledged.
func (e *Engine) Acknowledged(ctx context.Context) error { return e.t.log.Acknowledged(ctx) }

// Committed records that a commit has taken effect, for reports.
func (e *Engine) Committed() { e.t.log.Committed() }

// SnapshotFailed records why there is no newer snapshot of the task's state. Safe for concurrent
// use.
func (e *Engine) SnapshotFailed(err error) { e.t.status.SnapshotFailed(err) }

// Refused returns the error of an append of an instance.
func Refused(err error, instance uint64) error {
	if sharedlog.KindOf(err) == sharedlog.KindConditionFailed {
		return fmt.Errorf("%w (this was instance %d)", ErrFenced, instance)
	}
	return fmt.Errorf("append: %w", err)
}
