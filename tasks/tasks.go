package tasks

import (
	"context"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/runtime"
)

// ErrFenced is in the error of a job one of whose tasks was taken over by another
// instance: somebody else runs the job now.
var ErrFenced = runtime.ErrFenced

// Job is a running job.
type Job = runtime.Job

// Status is a reading of one task's progress.
type Status = runtime.Snapshot

// Run runs a job to its end: it returns nil when every task has committed the end
// of its input. When ctx ends, the job stops as a crash would stop it (nothing is
// lost, and running it again goes on), and the error is ctx's.
func Run(ctx context.Context, log sharedlog.Log, plan *operators.Plan, o Options) error {
	j, err := Start(ctx, log, plan, o)
	if err != nil {
		return err
	}
	return j.Wait()
}

// Start is Run without waiting: it returns once the job is registered in the log
// and its tasks are starting. The caller must Wait for it (or Stop it) before it
// closes the log.
func Start(ctx context.Context, log sharedlog.Log, plan *operators.Plan, o Options) (*Job, error) {
	o, protocol, err := o.withDefaults(plan.Name)
	if err != nil {
		return nil, err
	}
	layout, err := register(ctx, log, plan, o)
	if err != nil {
		return nil, err
	}
	return runtime.Start(ctx, &runtime.Config{
		Log: log, Layout: layout, Protocol: protocol,
		CommitInterval: o.CommitInterval, FlushInterval: o.FlushInterval, TrimBytes: uint64(max(o.TrimBytes, 0)), TrimInterval: o.TrimInterval,
		CommitBytes: o.CommitBytes, InFlight: o.InFlight, Lead: o.Lead,
		Clock: o.Clock, Logger: o.Logger.With("job", layout.Job),
	})
}
