// Package direct commits the tasks of a job one by one, by markers only: a commit takes effect when
// its marker is in the log (protocols fused, marker and unsafe).
//
// Other committers embed its Committer and override what differs. Its instance replaces its
// predecessor by itself, and its methods for coordinators, checkpoints and barriers do nothing.
package direct

import (
	"context"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/runtime"
)

// Commits implements runtime.Commits.
type Commits struct{}

// Together implements runtime.Commits.
func (Commits) Together(int) bool { return false }

// Attempt implements runtime.Commits.
func (Commits) Attempt(context.Context) (runtime.Attempt, error) { return runtime.Attempt{}, nil }

// New implements runtime.Commits.
func (Commits) New(e *runtime.Engine, _ runtime.Attempt) (runtime.Committer, error) {
	return New(e), nil
}

// Committer implements runtime.Committer.
type Committer struct {
	Engine *runtime.Engine
	tags   []sharedlog.Tag // of markers
}

// New returns the committer of a task.
func New(e *runtime.Engine) *Committer {
	return &Committer{Engine: e, tags: append(e.OutputTags(), e.TaskTag())}
}

// Run implements runtime.Committer.
func (c *Committer) Run(ctx context.Context, live func(context.Context) error) error {
	return live(ctx)
}

// Start implements runtime.Committer.
func (c *Committer) Start(ctx context.Context) error {
	return c.Engine.Start(ctx, func(_ context.Context, place sharedlog.LSN) (sharedlog.LSN, error) { return place, nil })
}

// Work implements runtime.Committer.
func (c *Committer) Work(ctx context.Context, loop func(context.Context) error) error {
	if c.Engine.Ended() {
		return nil
	}
	return loop(ctx)
}

// Flush implements runtime.Committer.
func (c *Committer) Flush(ctx context.Context, _ uint64, records []sharedlog.Record) error {
	return c.Engine.Append(ctx, records, false)
}

// Needed implements runtime.Committer.
func (c *Committer) Needed() bool { return true }

// Changes implements runtime.Committer.
func (c *Committer) Changes(context.Context) ([]sharedlog.Record, error) {
	if c.Engine.Config().Protocol.Capabilities().KeepsChanges {
		return c.Engine.LogChanges()
	}
	c.Engine.DropChanges()
	return nil, nil
}

// Marker implements runtime.Committer.
func (c *Committer) Marker(*envelope.Marker) []sharedlog.Tag { return c.tags }

// Commit implements runtime.Committer.
func (c *Committer) Commit(ctx context.Context, _ uint64, groups [][]sharedlog.Record, names bool) error {
	for i, group := range groups {
		if err := c.Engine.Append(ctx, group, i == len(groups)-1); err != nil {
			return err
		}
	}
	if names {
		c.Engine.Landed(func(sharedlog.LSN) { c.Engine.Reached(observe.SnapshotNamed) })
		c.Engine.Reached(observe.SnapshotNaming)
	}
	return nil
}

// Drain implements runtime.Committer.
func (c *Committer) Drain(ctx context.Context) error { return c.Engine.Acknowledged(ctx) }

// Close implements runtime.Committer.
func (c *Committer) Close() {}

// Advanced implements runtime.Committer.
func (c *Committer) Advanced(ctx context.Context) error {
	if !c.Engine.InputEnded() {
		return nil
	}
	return c.SourceEnded(ctx)
}

// Completed implements runtime.Committer.
func (c *Committer) Completed(sharedlog.LSN, *envelope.Checkpoint) {}

// Poll implements runtime.Committer.
func (c *Committer) Poll(context.Context) (runtime.Poll, error) { return runtime.PollSource, nil }

// Wait implements runtime.Committer.
func (c *Committer) Wait(most time.Duration) (time.Duration, <-chan struct{}) { return most, nil }

// SourceEnded implements runtime.Committer.
func (c *Committer) SourceEnded(ctx context.Context) error {
	c.Engine.End(true)
	return c.Engine.Commit(ctx)
}
