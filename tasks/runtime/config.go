package runtime

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/copies"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/retry"
	"tailrace.dev/tailrace/tasks/savepoint"
	"tailrace.dev/tailrace/tasks/standby"
	"tailrace.dev/tailrace/tasks/state"
)

// Config is what all tasks of a job share.
type Config struct {
	Log sharedlog.Log
	// Layout is the job's layout when the process started. The present one is Present.
	Layout  *layout.Layout
	present atomic.Pointer[layout.Layout]
	// Plan is the newest plan of the job at that time.
	Plan     *envelope.Plan
	Protocol progress.Protocol
	// Commits is how the tasks commit under that protocol.
	Commits Commits
	// CommitInterval is the longest time between processing a record and starting its commit.
	// FlushInterval is the same for appending its outputs, for protocols that flush between
	// commits, and for the commits of source stages under the others. Tasks with nothing to read do
	// both sooner (package timing).
	CommitInterval, FlushInterval time.Duration
	// CommitBytes of pending output trigger a flush and a commit (pitfall T14).
	CommitBytes int
	// HeldMemory bounds the memory of a task for input that does not count yet; the task reads the
	// rest again.
	HeldMemory int
	// InFlight bounds the unacknowledged groups of one task.
	InFlight int
	// Lead bounds by how many bytes the source stages may be ahead of the slowest stage that
	// consumes their output; 0 = no bound. It is back-pressure for sources that can wait; without
	// it the log accepts everything, and the backlog grows on disk.
	Lead int64
	// What every task has consumed is trimmed each TrimInterval, if TrimBytes have been appended
	// since; TrimBytes 0 = nothing is trimmed.
	TrimBytes    uint64
	TrimInterval time.Duration
	// OnError says what happens to an item that the job's code cannot process: fail, skip or
	// dead-letter (passover.go).
	OnError string
	// Checkpoints is where snapshots of state go, one each SnapshotInterval or SnapshotBytes of log
	// (package pace; 0 or less: no bound by bytes), or when SnapshotMemory of changes wait for it;
	// nil: no snapshots, and the change log alone has the state.
	Checkpoints      checkpoint.Store
	SnapshotInterval time.Duration
	SnapshotBytes    int64
	SnapshotMemory   int
	// Savepoint is the description of this job that goes into its savepoints.
	Savepoint savepoint.Job
	// From names the savepoint in Checkpoints that tasks start from if they have never committed;
	// empty: they start with nothing.
	From string
	// DropState names the parts of that savepoint that are dropped (savepoint.Manifest.Fit).
	DropState []string
	// State stores state that is larger than memory; nil keeps all state in memory.
	State *state.Pebble
	// Handover moves key groups between the tasks of a stage; nil: nothing does.
	Handover Handover
	// GrainInterval is how often the grain of a stage is chosen anew that changes while the job runs; < 0: only
	// Handover.Switch changes it.
	GrainInterval time.Duration
	// Peers connects the processes that run the job's tasks; nil: there is one, or they are not connected.
	Peers copies.Peers
	// Standbys: a Job keeps a warm copy of each task with state in this process, for its Fail.
	// (Workers learn from their view of the cluster which copies to keep.)
	Standbys bool
	warm     standby.Copies[*task]
	// Observer is told the steps of the tasks; nil: it is not.
	Observer observe.Observer
	// Clock reads the wall clock. Package runtime reads no other; leases and the schedule of
	// checkpoints use the time of the system.
	Clock  func() time.Time
	Logger *slog.Logger
}

// Present returns the job's layout as of the newest plan that this process knows. Safe for concurrent
// use.
func (c *Config) Present() *layout.Layout {
	if l := c.present.Load(); l != nil {
		return l
	}
	return c.Layout
}

// SetPresent sets the layout as of a newer plan. Safe for concurrent use.
func (c *Config) SetPresent(l *layout.Layout) {
	c.present.Store(l)
	c.warm.Moved()
}

// Retry calls f until it succeeds or ctx ends, with growing delays, and logs some of the failures.
func (c *Config) Retry(ctx context.Context, what string, f func(context.Context) error) error {
	return retry.Policy{Clock: c.Clock, Logger: c.Logger}.Do(ctx, what, f)
}

// Reached tells the observer that the job has reached a step; e names the step, and the task if it
// is a task's. Safe for concurrent use.
func (c *Config) Reached(e observe.Event) {
	if c.Observer != nil {
		e.Job = c.Layout.Job
		c.Observer(e)
	}
}
