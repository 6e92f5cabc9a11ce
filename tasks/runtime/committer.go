package runtime

import (
	"context"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
)

// Commits makes the committers of a job's tasks in this process. The packages below tasks/commit
// implement it, one for each way to commit; package tasks chooses among them.
type Commits interface {
	// Together reports whether the tasks of a stage start, commit and fail together, as one unit
	// with those of all other stages for which it reports true.
	Together(stage int) bool
	// Attempt returns a new attempt of the job, in which a Job starts those tasks; the zero value
	// if there are none.
	Attempt(ctx context.Context) (Attempt, error)
	// New returns the committer of a new instance of a task. Tasks that start by themselves ignore
	// the attempt.
	New(e *Engine, of Attempt) (Committer, error)
}

// Attempt identifies one execution of a job whose tasks commit together (package aligned). The
// process that starts the tasks chooses it, and starts each task once in it. Of two attempts the
// one with the higher number is the job's; of two nonces with the same number, the first one that
// was set.
type Attempt struct{ Number, Nonce uint64 }

// Committer is what a commit protocol does in one instance of a task: it decides how the instance
// begins, appends its commits as the protocol prescribes, and knows when each is final. The task's
// goroutine calls it. direct.Committer has a default for each method.
type Committer interface {
	// Run calls live, which is the whole life of the instance, and returns its error.
	Run(ctx context.Context, live func(context.Context) error) error
	// Start replaces the task's predecessor, restores what it committed, and announces the
	// instance. If the predecessor had committed the end of input, it does nothing but Engine.End.
	Start(ctx context.Context) error
	// Work calls loop, which processes the input, unless the task has ended before. It returns when
	// the end of the input is final.
	Work(ctx context.Context, loop func(context.Context) error) error

	// Flush appends outputs, or changes, of a commit before its marker.
	Flush(ctx context.Context, commit uint64, records []sharedlog.Record) error
	// Needed reports whether the job needs the commit that is due.
	Needed() bool
	// Changes returns the state changes since the last commit, as far as they are logged.
	Changes(ctx context.Context) ([]sharedlog.Record, error)
	// Marker completes the marker of a commit and returns its tags, which the log keeps.
	Marker(m *envelope.Marker) []sharedlog.Tag
	// Commit ends a commit; names says that its marker names a snapshot for the first time.
	Commit(ctx context.Context, commit uint64, groups [][]sharedlog.Record, names bool) error
	// Drain waits until everything is decided and in the log.
	Drain(ctx context.Context) error
	// Close ends the work in progress, when the instance has ended.
	Close()

	// Advanced is called when the task has processed a marker: event time has moved as far as the
	// input's markers allow.
	Advanced(ctx context.Context) error
	// Completed handles the record of a complete checkpoint.
	Completed(at sharedlog.LSN, c *envelope.Checkpoint)

	// Poll is called before a source is read, and says what to do instead.
	Poll(ctx context.Context) (Poll, error)
	// Wait returns how long a source that has nothing to do may sleep, at most most, and a channel
	// that wakes it before, nil if none does.
	Wait(most time.Duration) (time.Duration, <-chan struct{})
	// SourceEnded commits the end of a source.
	SourceEnded(ctx context.Context) error
}

// Poll says what a source does next.
type Poll int

const (
	// PollSource: it reads the source.
	PollSource Poll = iota
	// PollNothing: the source has ended, and its end is not committed yet.
	PollNothing
	// PollEnd: the end of the source is committed.
	PollEnd
)
