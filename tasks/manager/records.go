package manager

import "fmt"

// Job is what the manager must know of a job.
type Job struct {
	Name, Program, Format string
	Labels                map[string]string
	Stages                []Stage
	// Standbys is how many workers keep a warm copy of each task.
	Standbys int
	// MaxRestarts is how often a task is begun again whose failures are the job's own
	// code's; negative: any number.
	MaxRestarts int
	// Stop: it is to be stopped.
	Stop bool
	// Savepoint is the number of one that is to be made, 0: none.
	Savepoint uint64
}

// Stage is one stage of a job.
type Stage struct {
	Name  string
	Tasks int
	// Together: its tasks are in one attempt with those of all others of the job that
	// have it, and begin, fail and move together (protocol aligned). Not so sinks.
	Together bool
}

// Phase is how far a job is, as it stands in etcd too.
type Phase string

// The phases.
const (
	Submitted Phase = "submitted"
	Refused   Phase = "refused"
	Running   Phase = "running"
	Draining  Phase = "draining" // sources have stopped for a savepoint, what is on its way is processed
	Saving    Phase = "saving"   // all tasks have stopped for it
	Stopping  Phase = "stopping"
	Stopped   Phase = "stopped"
	Finished  Phase = "finished"
	Failed    Phase = "failed" // its own code has, more often than it may
)

// next lists all legal moves of a job's phase.
var next = map[Phase][]Phase{
	Submitted: {Running, Refused, Stopped},
	Refused:   {Stopped},
	Running:   {Draining, Stopping, Finished, Failed},
	Draining:  {Running, Saving, Stopping, Finished, Failed}, // Running: nobody wants the savepoint any more
	Saving:    {Stopped},
	Stopping:  {Stopped},
	Stopped:   {Submitted},
	Finished:  {},
	Failed:    {Stopping},
}

// Worker is what the manager must know of a worker.
type Worker struct {
	Name, Nonce, Addr, Format, Program string
	// Stages, Jobs and Labels narrow down what it runs; empty: anything.
	Stages, Jobs []string
	Labels       map[string]string
	// Capacity is how many tasks it takes, 0 = any number.
	Capacity int
}

// Placement says which worker runs a task; none if Nonce is empty.
type Placement struct {
	Task                TaskKey
	Worker, Nonce, Addr string
	Attempt             int
	Ended               bool
}

// TaskKey names a task by its job's name, and its stage's and its own number.
type TaskKey struct {
	Job         string
	Stage, Task int
}

// String is for logs and scripts.
func (k TaskKey) String() string { return fmt.Sprintf("%s/%d/%d", k.Job, k.Stage, k.Task) }

// Report is what a worker says of itself, many times a second.
type Report struct {
	Worker string `json:"worker"`
	Nonce  string `json:"nonce"`
	// Leaving: it has been asked to end and takes no tasks.
	Leaving bool `json:"leaving,omitempty"`
	// LogSilent is for how many ms it has not reached the log.
	LogSilent int64 `json:"log_silent_ms,omitempty"`
	// Tasks are those that it runs, and the newest attempt of those that it ran.
	Tasks []TaskReport `json:"tasks,omitempty"`
	// Standbys are the tasks of which it has a warm copy (Attempt and State are not
	// set).
	Standbys []TaskReport `json:"standbys,omitempty"`
}

// How a task that a worker was given is doing.
const (
	TaskRunning = "running"
	TaskEnded   = "ended"   // it has committed the end of its input
	TaskStopped = "stopped" // the worker was asked to stop it, and did
	TaskDrained = "drained" // it has stopped for the job's savepoint
	TaskFenced  = "fenced"  // another instance has taken over
	TaskFailed  = "failed"
	TaskRefused = "refused" // this worker cannot run this job (its graph is another)
)

// TaskReport is what a worker says of a task.
type TaskReport struct {
	Job     string `json:"job"` // its name
	ID      string `json:"id"`  // its id: a name may be used again
	Stage   int    `json:"stage"`
	Task    int    `json:"task"`
	Attempt int    `json:"attempt"`
	State   string `json:"state"`
	Error   string `json:"error,omitempty"`
	// User: TaskFailed, by the job's own code.
	User bool `json:"user,omitempty"`
}

// Key returns the task that it is about.
func (t TaskReport) Key() TaskKey { return TaskKey{t.Job, t.Stage, t.Task} }

// Action is something to be done. Which fields are set depends on Kind.
type Action struct {
	Kind ActionKind
	Job  string
	// Place: the placement as it is to be; with nobody, the task is withdrawn.
	Placement Placement
	// SetPhase.
	Phase  Phase
	Detail string
}

// ActionKind is what an Action asks for.
type ActionKind int

// The kinds of actions.
const (
	// Register: make the job known to the log, and say so with Registered.
	Register ActionKind = iota
	// Place: write the placement.
	Place
	// SetPhase: write the job's phase.
	SetPhase
	// Copy: begin a savepoint, and copy what can be copied while the job runs; say so
	// with Copied.
	Copy
	// Save: finish it, all tasks have stopped; say so with Saved.
	Save
	// Note: tell people (Detail; Job may be empty).
	Note
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
	case Place:
		p := a.Placement
		switch {
		case p.Ended:
			return fmt.Sprintf("ended %v", p.Task)
		case p.Nonce == "":
			return fmt.Sprintf("withdraw %v", p.Task)
		}
		return fmt.Sprintf("place %v with %s, attempt %d", p.Task, p.Worker, p.Attempt)
	case SetPhase:
		if a.Detail != "" {
			return fmt.Sprintf("phase %s %s: %s", a.Job, a.Phase, a.Detail)
		}
		return fmt.Sprintf("phase %s %s", a.Job, a.Phase)
	}
	return "note " + a.Detail
}

// Settings are the manager's patience, in ms, and pace.
type Settings struct {
	// Refused: nobody listens at a worker's address for so long: it is gone. Silent:
	// a worker without a lease is gone after so long without a word.
	Refused, Silent int64
	// LogSilent: a worker that has not reached the log for so long gives its tasks
	// to one that does.
	LogSilent int64
	// Untaken: a worker that has not taken a task for so long does not get it again
	// for as long (it is cut off from etcd, say).
	Untaken int64
	// Settle: after a worker has come, tasks that never ran wait so long for others,
	// so that not all of them land with the first. Balance: a worker that has been
	// there for so long gets tasks from those that have two more.
	Settle, Balance int64
	// A failed task rests for Rest, then twice as long, up to RestMost; what has run
	// for Forgive begins again at Rest.
	Rest, RestMost, Forgive int64
	// Burst placements at once, then PerSecond.
	Burst, PerSecond int64
	// Deaf: a manager that did not look for so long has heard nobody, and judges
	// nobody by that time.
	Deaf int64
}

// Default are the settings of a cluster.
var Default = Settings{
	Refused: 100, Silent: 1000, LogSilent: 2000, Untaken: 3000, Settle: 250, Balance: 2000,
	Rest: 200, RestMost: 10_000, Forgive: 30_000, Burst: 128, PerSecond: 64,
	Deaf: 400,
}
