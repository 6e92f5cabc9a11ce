package tasks

import (
	"context"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/autoscale"
	"tailrace.dev/tailrace/tasks/balance"
	"tailrace.dev/tailrace/tasks/embedded"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/grains"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/status"
)

// ErrFenced is in the error of a job one of whose tasks was taken over by another instance: another
// process runs the job now.
var ErrFenced = runtime.ErrFenced

// UserError is in the error of a job whose own code failed.
type UserError = runtime.UserError

// Job is a running job.
type Job = embedded.Job

// Rescale is a request to move key groups between the tasks of a stage (Job.Rescale), Rescaled what
// has been done.
type (
	Rescale  = rescale.Request
	Rescaled = rescale.Result
)

// Reroute is a request to replace the routing table of streams with slots (Job.Reroute).
type Reroute = routing.Reroute

// Autoscale is a request to keep the number of tasks of a stage between two bounds, as its load demands
// (Job.Autoscale), Autoscaled what has been done for a stage (Job.Autoscaled).
type (
	Autoscale  = autoscale.Request
	Autoscaled = autoscale.State
)

// Balance is a request to distribute the key groups of a stage over its tasks, as the load demands
// (Job.Balance), at the times that BalanceWhen says; Balanced is what has been measured and done (Job.Balanced).
// BalancePlanner makes the owners from a BalanceLoad, if Dispatch is BalanceOwn.
type (
	Balance        = balance.Request
	BalanceWhen    = balance.When
	Balanced       = balance.State
	BalanceLoad    = balance.Load
	BalancePlanner = balance.Planner
)

// BalanceOwn is the Dispatch of a Balance with a Planner.
const BalanceOwn = balance.Own

// SwitchGrain is a request to change which keys of a stage share a clock (Job.SwitchGrain), Grain what they do then.
type (
	SwitchGrain = runtime.Switch
	Grain       = envelope.Grain
)

// Chosen says how the grain of a stage is chosen (Job.Grains), Switched is a switch of it.
type (
	Chosen   = grains.State
	Switched = grains.Switch
)

// Status is a reading of one task's progress.
type Status = status.Snapshot

// Moved says how the state of key groups came to a task (Status.Moved).
type Moved = status.Moved

// Sent is what a task has appended to one of its output streams (Status.Sent).
type Sent = status.Sent

// ErrEnded is in the error of Job.Fail, Job.Savepoint and Job.Rescale after the job has ended.
var ErrEnded = runtime.ErrEnded

// ErrDrained ends a job that was stopped with a savepoint.
var ErrDrained = runtime.ErrDrained

// Run runs a job to its end: it returns nil when every task has committed the end of its input.
// When ctx ends, the job stops as in a crash (nothing is lost, and running it again resumes it),
// and the error is ctx's.
func Run(ctx context.Context, log sharedlog.Log, plan *exec.Plan, o Options) error {
	j, err := Start(ctx, log, plan, o)
	if err != nil {
		return err
	}
	return j.Wait()
}

// Start is Run without waiting: it returns once the job is registered in the log and its tasks are
// starting. The caller must Wait for the job (or Stop it) before it closes the log.
func Start(ctx context.Context, log sharedlog.Log, plan *exec.Plan, o Options) (*Job, error) {
	spec, err := Describe(plan, o)
	if err != nil {
		return nil, err
	}
	if err := spec.CheckFrom(ctx, log, o.Checkpoints); err != nil {
		return nil, err
	}
	if spec.Slots > 0 {
		if err := spec.checkStages(log, plan, o); err != nil {
			return nil, err
		}
	}
	id, err := Register(ctx, log, o.Checkpoints, spec)
	if err != nil {
		return nil, err
	}
	cfg, err := spec.joined(ctx, log, plan, id, o)
	if err != nil {
		return nil, err
	}
	return embedded.Start(ctx, cfg)
}
