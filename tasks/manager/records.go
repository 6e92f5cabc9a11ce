package manager

import "fmt"

// Job is the part of a job that the manager needs.
type Job struct {
	Name, Program, Format string
	Labels                map[string]string
	Stages                []Stage
	// Standbys is how many workers keep a warm copy of each task.
	Standbys int
	// MaxRestarts is how often a task restarts whose failures are caused by the job's own code;
	// negative: no limit.
	MaxRestarts int
	// Stop: the job is to be stopped.
	Stop bool
	// Savepoint is the number of the requested savepoint, 0: none.
	Savepoint uint64
	// Rescale is the number of the newest request to move key groups that has no outcome yet, 0: none.
	Rescale uint64
}

// Stage is one stage of a job.
type Stage struct {
	Name string
	// Tasks is the number of tasks in the job's settings; Planned says how many it has now.
	Tasks int
	// Together: its tasks share one attempt with the tasks of all other stages of the job that have
	// it, and start, fail and move together (protocol aligned). Sinks do not have it.
	Together bool
}

// Phase is the phase of a job, as in etcd.
type Phase string

// The phases.
const (
	Submitted Phase = "submitted"
	Refused   Phase = "refused"
	Running   Phase = "running"
	Draining  Phase = "draining" // sources have stopped for a savepoint; tasks process what is in flight
	Saving    Phase = "saving"   // all tasks have stopped for it
	Stopping  Phase = "stopping"
	Stopped   Phase = "stopped"
	Finished  Phase = "finished"
	Failed    Phase = "failed" // its own code has failed, more often than it may
)

// next lists all legal transitions of a job's phase.
var next = map[Phase][]Phase{
	Submitted: {Running, Refused, Stopped},
	Refused:   {Stopped},
	Running:   {Draining, Stopping, Finished, Failed},
	Draining:  {Running, Saving, Stopping, Finished, Failed}, // Running: the savepoint is no longer wanted
	Saving:    {Stopped},
	Stopping:  {Stopped},
	Stopped:   {Submitted},
	Finished:  {},
	Failed:    {Stopping},
}

// Worker is the part of a worker that the manager needs.
type Worker struct {
	Name, Nonce, Addr, Format, Program string
	// Stages, Jobs and Labels restrict what it runs; empty: anything.
	Stages, Jobs []string
	Labels       map[string]string
	// Capacity is how many tasks it accepts, 0 = no limit.
	Capacity int
}

// Placement says which worker runs a task; no worker if Nonce is empty.
type Placement struct {
	Task                TaskKey
	Worker, Nonce, Addr string
	Attempt             int
	Ended               bool
	// Newcomer: the task waits for the plan that makes it one of its stage. Left: it is none of its
	// stage, any more or yet.
	Newcomer, Left bool
}

// TaskKey identifies a task by its job's name, its stage and its number.
type TaskKey struct {
	Job         string
	Stage, Task int
}

// String is for logs and scripts.
func (k TaskKey) String() string { return fmt.Sprintf("%s/%d/%d", k.Job, k.Stage, k.Task) }

// Report is what a worker sends about itself, many times a second.
type Report struct {
	Worker string `json:"worker"`
	Nonce  string `json:"nonce"`
	// Leaving: it has been asked to end and accepts no tasks.
	Leaving bool `json:"leaving,omitempty"`
	// LogSilent is for how many ms it has not reached the log.
	LogSilent int64 `json:"log_silent_ms,omitempty"`
	// Tasks are those that it runs, and the newest attempt of each task that it ran.
	Tasks []TaskReport `json:"tasks,omitempty"`
	// Standbys are the tasks of which it has a warm copy (Attempt and State are not set).
	Standbys []TaskReport `json:"standbys,omitempty"`
}

// The states of a task that a worker was assigned.
const (
	TaskRunning = "running"
	TaskEnded   = "ended"   // it has committed the end of its input
	TaskStopped = "stopped" // the manager asked the worker to stop it, and it did
	TaskDrained = "drained" // it has stopped for the job's savepoint
	TaskFenced  = "fenced"  // another instance has taken over
	TaskFailed  = "failed"
	TaskRefused = "refused" // this worker cannot run this job (its job graph differs)
)

// TaskReport is what a worker reports about a task.
type TaskReport struct {
	Job     string `json:"job"` // its name
	ID      string `json:"id"`  // its id, because a name may be used again
	Stage   int    `json:"stage"`
	Task    int    `json:"task"`
	Attempt int    `json:"attempt"`
	State   string `json:"state"`
	// Instance is the number of the instance, 0 until it has replaced its predecessors.
	Instance uint64 `json:"instance,omitempty"`
	Error    string `json:"error,omitempty"`
	// User: TaskFailed, caused by the job's own code.
	User bool `json:"user,omitempty"`
}

// Key returns the task that it is about.
func (t TaskReport) Key() TaskKey { return TaskKey{t.Job, t.Stage, t.Task} }

// Action is something that the server must do. Kind determines which fields are set.
type Action struct {
	Kind ActionKind
	Job  string
	// Place: the new placement; without a worker, the task is withdrawn.
	Placement Placement
	// SetPhase.
	Phase  Phase
	Detail string
}

// ActionKind is what an Action asks for.
type ActionKind int

// The kinds of actions.
const (
	// Register: register the job in the log, and answer with Registered.
	Register ActionKind = iota
	// Place: write the placement.
	Place
	// SetPhase: write the job's phase.
	SetPhase
	// Copy: start a savepoint, and copy what can be copied while the job runs; answer with Copied.
	Copy
	// Save: complete it, because all tasks have stopped; answer with Saved.
	Save
	// Note: write a job log entry (Detail; Job may be empty).
	Note
	// Move: move key groups as the requests and the newest plan ask for, then switch grains; answer with Planned when
	// there is a new plan, and at the end with Moved.
	Move
	// Hold: end a Move as soon as possible.
	Hold
)

// String is for scripts.
func (a Action) String() string {
	switch a.Kind {
	case Register:
		return "register " + a.Job
	case Copy:
		return "copy " + a.Job
	case Save:
		return "save " + a.Job
	case Move:
		return "move " + a.Job
	case Hold:
		return "hold " + a.Job
	case Place:
		p := a.Placement
		switch {
		case p.Ended:
			return fmt.Sprintf("ended %v", p.Task)
		case p.Left:
			return fmt.Sprintf("left %v", p.Task)
		case p.Nonce == "":
			return fmt.Sprintf("withdraw %v", p.Task)
		}
		what := ""
		if p.Newcomer {
			what = ", a newcomer"
		}
		return fmt.Sprintf("place %v with %s, attempt %d%s", p.Task, p.Worker, p.Attempt, what)
	case SetPhase:
		if a.Detail != "" {
			return fmt.Sprintf("phase %s %s: %s", a.Job, a.Phase, a.Detail)
		}
		return fmt.Sprintf("phase %s %s", a.Job, a.Phase)
	}
	return "note " + a.Detail
}

// Settings are the manager's timeouts, in ms, and its pace.
type Settings struct {
	// Refused: a worker is gone once connections to its address have been refused for this long.
	// Silent: a worker without a lease is gone once it has not reported for this long.
	Refused, Silent int64
	// LogSilent: a worker that has not reached the log for this long loses its tasks to one that
	// does.
	LogSilent int64
	// Untaken: a worker that has not started a task for this long does not receive it again for as
	// long (it may be disconnected from etcd).
	Untaken int64
	// Gather: after a worker has registered, tasks that never ran wait this long for further
	// workers, so that not all of them go to the first. Balance: a worker that has been registered
	// for this long receives tasks from those that have two more.
	Gather, Balance int64
	// A failed task rests for Rest, then twice as long, up to RestMost; one that has run for
	// Forgive starts again at Rest.
	Rest, RestMost, Forgive int64
	// Burst placements at once, then PerSecond.
	Burst, PerSecond int64
	// Deaf: a manager that did not run for this long has received no reports, and counts none of
	// that time against workers.
	Deaf int64
}

// Default are the settings of a cluster.
var Default = Settings{
	Refused: 100, Silent: 1000, LogSilent: 2000, Untaken: 3000, Gather: 250, Balance: 2000,
	Rest: 200, RestMost: 10_000, Forgive: 30_000, Burst: 128, PerSecond: 64,
	Deaf: 400,
}
