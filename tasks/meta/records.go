package meta

import (
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/manager"
)

// Cluster names what this etcd is about.
type Cluster struct {
	// ID is random, chosen when the record is made.
	ID string `json:"id"`
	// Log are the sequencers' addresses.
	Log []string `json:"log"`
}

// What somebody wants of a job.
const (
	Run  = "run"
	Stop = "stop"
)

// Job is a job as it was submitted.
type Job struct {
	Spec      *tasks.Spec `json:"spec"`
	Want      string      `json:"want"` // Run or Stop
	Submitted time.Time   `json:"submitted"`
	// Savepoint is one that is to be made; nil: none.
	Savepoint *Savepoint `json:"savepoint,omitempty"`
}

// Savepoint is what somebody wants of a job besides.
type Savepoint struct {
	Name string `json:"name"`
	// Number tells the job's savepoints apart; they rise.
	Number uint64 `json:"number"`
	// Stop: the job does not go on behind it.
	Stop bool `json:"stop,omitempty"`
}

// Saved is what became of a Savepoint.
type Saved struct {
	Name   string `json:"name"`
	Number uint64 `json:"number"`
	// Error is why it was not made.
	Error string `json:"error,omitempty"`
	// At is its place in the log, Entries how many of state it has, StoodStill for how
	// long the tasks had stopped while it was finished.
	At         sharedlog.LSN `json:"at,omitempty"`
	Entries    uint64        `json:"entries,omitempty"`
	StoodStill time.Duration `json:"stood_still_ns,omitempty"`
}

// Phase is how far a job is: the manager decides that. Refused and failed jobs say why in
// State.Detail.
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

// State is what the manager says of a job.
type State struct {
	// ID is the job's id in the log, once it is registered there.
	ID     string    `json:"id,omitempty"`
	Phase  Phase     `json:"phase"`
	Detail string    `json:"detail,omitempty"`
	Since  time.Time `json:"since"`
	// Saved is the newest savepoint that was asked for.
	Saved *Saved `json:"saved,omitempty"`
}

// Assignment says which worker runs a task.
type Assignment struct {
	Job   string `json:"job"` // its name
	Stage int    `json:"stage"`
	Task  int    `json:"task"`
	// Worker and Nonce name the process, Addr is where it was when it got the task;
	// all empty: nobody has it any more.
	Worker string `json:"worker,omitempty"`
	Nonce  string `json:"nonce,omitempty"`
	Addr   string `json:"addr,omitempty"`
	// Attempt counts how often the task has been given to somebody.
	Attempt int `json:"attempt"`
	// Ended: the task has committed the end of its input.
	Ended bool `json:"ended,omitempty"`
}

// Worker is a process that offers to run tasks.
type Worker struct {
	Name string `json:"name"`
	// Nonce is this process's own: a worker that was started again has another.
	Nonce string `json:"nonce"`
	// Addr is where it answers a manager and tailrace status; HTTP where metrics are.
	Addr string `json:"addr"`
	HTTP string `json:"http,omitempty"`
	Host string `json:"host"`
	PID  int    `json:"pid"`
	// Format is tasks.Format, Version the release, Program what it can run.
	Format  string `json:"format"`
	Version string `json:"version"`
	Program string `json:"program"`
	// Stages, Jobs and Labels narrow down what it runs; empty: anything.
	Stages []string          `json:"stages,omitempty"`
	Jobs   []string          `json:"jobs,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Tasks is how many it takes, 0 = any number.
	Tasks int `json:"tasks,omitempty"`
}

// Manager is a task manager that leads.
type Manager struct {
	Name string `json:"name"`
	Addr string `json:"addr"`
	HTTP string `json:"http,omitempty"`
	PID  int    `json:"pid"`
}

// View is all that etcd holds, as of one moment. Nobody changes it.
type View struct {
	Cluster Cluster // zero if there is no record
	Jobs    map[string]Job
	States  map[string]State
	Workers map[string]Worker
	// Tasks has the assignments by job, stage and task number.
	Tasks map[TaskKey]Assignment
	// Manager leads; zero if nobody does.
	Manager Manager
}

// TaskKey names a task.
type TaskKey = manager.TaskKey

// Key returns the task that an assignment is about.
func (a Assignment) Key() TaskKey { return TaskKey{Job: a.Job, Stage: a.Stage, Task: a.Task} }
