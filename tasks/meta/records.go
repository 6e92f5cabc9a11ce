package meta

import (
	"slices"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/manager"
)

// Cluster identifies the cluster that this etcd belongs to.
type Cluster struct {
	// ID is random, chosen when the record is created.
	ID string `json:"id"`
	// Log are the sequencers' addresses.
	Log []string `json:"log"`
}

// The values of Job.Want.
const (
	Run  = "run"
	Stop = "stop"
)

// Job is a job as it was submitted.
type Job struct {
	Spec      *tasks.Spec `json:"spec"`
	Want      string      `json:"want"` // Run or Stop
	Submitted time.Time   `json:"submitted"`
	// Deleted: it is being deleted, and does not run again.
	Deleted bool `json:"deleted,omitempty"`
	// Savepoint is a requested savepoint that has no outcome yet; nil: none.
	Savepoint *Savepoint `json:"savepoint,omitempty"`
	// Rescale are the requests to move key groups that have no outcome yet, at most one a stage.
	Rescale []Rescale `json:"rescale,omitempty"`
	// Reroute are the requests for routing tables that have no outcome yet, at most one a stage.
	Reroute []Reroute `json:"reroute,omitempty"`
	// Newest is the highest number of a request in Rescale or Reroute, also of those that have an outcome.
	Newest uint64 `json:"newest_request,omitempty"`
	// Auto are the stages that are autoscaled, with their bounds.
	Auto []tasks.Autoscale `json:"auto,omitempty"`
	// Balance are the stages whose key groups are distributed as their load demands.
	Balance []tasks.Balance `json:"balance,omitempty"`
}

// Deleted is a job that was deleted, of which the log and the store of snapshots may still have records.
type Deleted struct {
	Spec *tasks.Spec `json:"spec"`
}

// Rescale is a request to move key groups of a stage (tasks.Rescale).
type Rescale struct {
	Stage string `json:"stage"`
	// Number distinguishes the job's requests; it rises.
	Number   uint64 `json:"number"`
	Tasks    int    `json:"tasks,omitempty"`
	Strategy string `json:"strategy,omitempty"`
	Owners   []int  `json:"owners,omitempty"`
	Have     []int  `json:"have,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	Mode     string `json:"mode,omitempty"`
	ID       string `json:"id,omitempty"`
	// Cancel: no further key groups are to move.
	Cancel bool `json:"cancel,omitempty"`
}

// Rescaled is the outcome of a Rescale.
type Rescaled struct {
	tasks.Rescaled
	Number uint64 `json:"number"`
	// Error is why it was refused, or cannot be completed.
	Error string `json:"error,omitempty"`
}

// Savepoint is a request for a savepoint.
type Savepoint struct {
	Name string `json:"name"`
	// Number distinguishes the job's savepoints; it rises.
	Number uint64 `json:"number"`
	// Stop: the job stops after it.
	Stop bool `json:"stop,omitempty"`
}

// Saved is the result of a Savepoint.
type Saved struct {
	Name   string `json:"name"`
	Number uint64 `json:"number"`
	// Error is why it failed.
	Error string `json:"error,omitempty"`
	// At is its place in the log, Entries its number of state entries, StoodStill for how long the
	// tasks had stopped while it was completed.
	At         sharedlog.LSN `json:"at,omitempty"`
	Entries    uint64        `json:"entries,omitempty"`
	StoodStill time.Duration `json:"stood_still_ns,omitempty"`
}

// HasSaved reports whether a request for a savepoint has an outcome.
func (s *State) HasSaved(r *Savepoint) bool { return s.Saved != nil && s.Saved.Number == r.Number }

// CloseSavepoint removes the request for a savepoint if it has an outcome in s. Behind a savepoint that was made for that, the job stops.
func (j *Job) CloseSavepoint(s *State) {
	if j.Savepoint == nil || !s.HasSaved(j.Savepoint) {
		return
	}
	if j.Savepoint.Stop && s.Saved.Error == "" {
		j.Want = Stop
	}
	j.Savepoint = nil
}

// Phase is the phase of a job, which the manager decides. For refused and failed jobs State.Detail
// has the reason.
type Phase = manager.Phase

// The phases.
const (
	Submitted = manager.Submitted
	Refused   = manager.Refused
	Running   = manager.Running
	Draining  = manager.Draining
	Saving    = manager.Saving
	Stopping  = manager.Stopping
	Stopped   = manager.Stopped
	Finished  = manager.Finished
	Failed    = manager.Failed
)

// State is what the manager reports about a job.
type State struct {
	// ID is the job's id in the log, once it is registered there.
	ID     string    `json:"id,omitempty"`
	Phase  Phase     `json:"phase"`
	Detail string    `json:"detail,omitempty"`
	Since  time.Time `json:"since"`
	// Saved is the newest savepoint that was requested.
	Saved *Saved `json:"saved,omitempty"`
	// Tasks is the number of tasks of each stage as of the newest plan in the log; empty: as in the
	// job's settings.
	Tasks []int `json:"tasks,omitempty"`
	// Rescaled are the outcomes of the newest requests to move key groups, at most one a stage.
	Rescaled []Rescaled `json:"rescaled,omitempty"`
	// Rerouted are those of the newest requests for routing tables, at most one a stage.
	Rerouted []Rerouted `json:"rerouted,omitempty"`
	// Switched are the newest switches of grains that managers have made, at most one a stage.
	Switched []Switched `json:"switched,omitempty"`
}

// Switched is a switch of the grain of a stage.
type Switched struct {
	Stage string `json:"stage"`
	tasks.Switched
}

// Answered reports whether a request has an outcome.
func (s *State) Answered(r *Rescale) bool {
	return slices.ContainsFunc(s.Rescaled, func(d Rescaled) bool { return d.Stage == r.Stage && d.Number >= r.Number })
}

// Assignment says which worker runs a task.
type Assignment struct {
	Job   string `json:"job"` // its name
	Stage int    `json:"stage"`
	Task  int    `json:"task"`
	// Worker and Nonce identify the process, Addr is its address when it was assigned the task; all
	// are empty if no worker has the task any more.
	Worker string `json:"worker,omitempty"`
	Nonce  string `json:"nonce,omitempty"`
	Addr   string `json:"addr,omitempty"`
	// Attempt counts how often the task has been assigned.
	Attempt int `json:"attempt"`
	// Ended: the task has committed the end of its input.
	Ended bool `json:"ended,omitempty"`
	// Newcomer: the task waits for the plan that makes it one of its stage. Left: it is none of its
	// stage, any more or yet.
	Newcomer bool `json:"newcomer,omitempty"`
	Left     bool `json:"left,omitempty"`
}

// Worker is a process that offers to run tasks.
type Worker struct {
	Name string `json:"name"`
	// Nonce is unique to this process: a restarted worker has another.
	Nonce string `json:"nonce"`
	// Addr is where it answers a manager and tailrace status; HTTP is where it serves metrics.
	Addr string `json:"addr"`
	HTTP string `json:"http,omitempty"`
	Host string `json:"host"`
	PID  int    `json:"pid"`
	// Format is tasks.Format, Version the release, Program the program that it can run.
	Format  string `json:"format"`
	Version string `json:"version"`
	Program string `json:"program"`
	// Stages, Jobs and Labels restrict what it runs; empty: anything.
	Stages []string          `json:"stages,omitempty"`
	Jobs   []string          `json:"jobs,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Tasks is how many it accepts, 0 = no limit.
	Tasks int `json:"tasks,omitempty"`
}

// Manager is a task manager that leads.
type Manager struct {
	Name string `json:"name"`
	Addr string `json:"addr"`
	HTTP string `json:"http,omitempty"`
	PID  int    `json:"pid"`
}

// View is everything in etcd, as of one moment. It is immutable.
type View struct {
	Cluster Cluster // zero if there is no record
	Jobs    map[string]Job
	States  map[string]State
	Workers map[string]Worker
	// Tasks has the assignments by job, stage and task number.
	Tasks map[TaskKey]Assignment
	// Manager is the leading manager; zero if there is none.
	Manager Manager
	// Deleted has the jobs whose records are still to be removed, by id in the log.
	Deleted map[string]Deleted
}

// TaskKey identifies a task.
type TaskKey = manager.TaskKey

// Key returns the task of an assignment.
func (a Assignment) Key() TaskKey { return TaskKey{Job: a.Job, Stage: a.Stage, Task: a.Task} }
