package tasks

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/copies"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/progress"
	taskruntime "tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/settings"
	"tailrace.dev/tailrace/tasks/state"
)

// Options are the settings of a job's run. The zero value of each means its default.
type Options struct {
	// Name is the job's name in the log; default: the plan's. A log holds one job of a name.
	Name string
	// Protocol is the commit protocol: fused (default), marker, txn, unsafe, aligned or
	// aligned-early (docs/protocol-aligned.md; those two need Checkpoints for state, and a
	// log that says what is durable).
	Protocol string
	// Parallelism is the number of tasks a stage (default: GOMAXPROCS); a stage
	// never has more than key groups.
	Parallelism int
	// Groups is the number of key groups a stream (default 64, at most 1024).
	Groups int
	// Slots is the number of slots of a stream (default 0, at most 256): spare key groups, in which Job.Balance places keys, and
	// parts of key groups, that are too heavy where they are. For state in memory. A job that begins from a savepoint (From) has as many as that one's job, if
	// something is placed in them.
	Slots int
	// CommitInterval is the longest time between processing a record and
	// starting to commit it (default 100 ms); under aligned, between the beginnings of
	// two checkpoints. A task that has consumed all its
	// input commits sooner (docs/adr/0008); one that is busy uses the interval
	// to combine updates of a key into one state change.
	CommitInterval time.Duration
	// FlushInterval is the longest time that outputs wait at a task, where that may be shorter than
	// a commit: at sources, and everywhere under marker, txn and aligned. Default: CommitInterval.
	FlushInterval time.Duration
	// CommitBytes of pending output trigger a commit before CommitInterval ends (default 1 MiB; 1
	// KiB to 8 MiB).
	CommitBytes int
	// HeldMemory bounds the memory of a task for input that does not count yet because its
	// producer's commit is not complete (default 64 MiB). The rest is read from the log again when
	// it counts.
	HeldMemory int
	// InFlight bounds the unacknowledged groups of one task (default 8).
	InFlight int
	// Lead bounds by how many bytes sources may run ahead of the stages that consume their streams
	// (default 0: no bound, the backlog is on disk).
	Lead int64
	// What every task has consumed and committed is trimmed each TrimInterval (default 250 ms), if
	// TrimBytes have been appended since (default 64 MiB; negative: nothing is ever trimmed).
	// Change logs are trimmed up to what the store has had for SnapshotInterval: without
	// Checkpoints they grow.
	TrimBytes    int64
	TrimInterval time.Duration
	// Checkpoints is where snapshots of the tasks' state go (default nil: no snapshots; state is
	// restored from the change log, which is kept whole). A snapshot is made each SnapshotInterval
	// (default 10 s), and sooner when the log has grown by SnapshotBytes (default 512 MiB, -1: no
	// bound by bytes), as far as this process appends them or the task reads them, or when a task
	// buffers SnapshotMemory of changes for it (default 32 MiB). So the log of a task with state
	// covers two intervals, or twice SnapshotBytes, whichever is less.
	Checkpoints      checkpoint.Store
	SnapshotInterval time.Duration
	SnapshotBytes    int64
	SnapshotMemory   int
	// State stores keyed state that is larger than memory (state.OpenPebble); nil keeps all state
	// in memory.
	State *state.Pebble
	// OnError says what happens to an item (or a timer) that the job's own code cannot process,
	// because a function panics or gives it up (operators.Fail), or because it cannot be decoded or
	// is too large:
	//
	//	fail         the task fails with an error that names it (default)
	//	skip         it is skipped and counted
	//	dead-letter  it is skipped, counted, and kept with the error (ReadDeadLetters)
	//
	// The changes and outputs that the item had made by then are undone. Under aligned a failure of
	// functions with state can only fail the task. A job that was created with dead-letter must
	// keep that setting.
	OnError string
	// MaxRestarts is how often a task on a worker restarts after a failure of the job's own code
	// (UserError), with growing delays, before the job fails for good. When a task has run for half
	// a minute, its earlier failures no longer count. 0: DefaultMaxRestarts, -1: no limit. In
	// a single process the first such failure ends the job.
	MaxRestarts int
	// Standbys is the number of warm copies of the state of each task with state, kept by workers
	// other than its own. Such a worker takes over as soon as the failure is detected. In a single
	// process any number means one copy, for Job.Fail.
	Standbys int
	// From is the name of a savepoint in Checkpoints: a job that has never run starts from the
	// state of another job of the same Settings. Protocol, parallelism and intervals may differ,
	// and so may the plan: tables with the same stage, name and type (operators.KeyedStream.Uid)
	// keep their contents, as do sources and sinks with the same name, and new ones start empty.
	// Anything else in the savepoint is an error, unless DropState names it: "STAGE/OPERATOR", or
	// "STAGE" for all of a stage.
	From      string
	DropState []string
	// Settings are the caller's own, which must be the same when the job is run again (its input,
	// for example): name → value. An error shows those that differ.
	Settings map[string]string
	// Logger receives messages about instances that start, stop or are fenced (default:
	// slog.Default()).
	Logger *slog.Logger
	// Observer is told the steps of the job's tasks, as they start, make snapshots, or take part in
	// checkpoints (package observe; default nil).
	Observer observe.Observer
	// GrainInterval is how often the grain of a stream with WatermarkPer(Auto) is chosen anew (default 1 s; negative:
	// it never is, only Job.SwitchGrain changes it).
	GrainInterval time.Duration
	// Peers connects the processes that run the job's tasks, which move key groups faster then (package
	// copies; default nil).
	Peers copies.Peers
	// Clock reads the wall clock (default time.Now).
	Clock func() time.Time
}

// DefaultMaxRestarts is the meaning of Options.MaxRestarts 0: half a minute on workers.
const DefaultMaxRestarts = settings.DefaultMaxRestarts

// The values of Options.OnError.
const (
	OnErrorFail       = taskruntime.OnErrorFail
	OnErrorSkip       = taskruntime.OnErrorSkip
	OnErrorDeadLetter = taskruntime.OnErrorDeadLetter
)

func (o Options) withDefaults(name string) (Options, progress.Protocol, error) {
	if o.Name == "" {
		o.Name = name
	}
	if o.Protocol == "" {
		o.Protocol = progress.Protocols()[0].Name()
	}
	if o.OnError == "" {
		o.OnError = OnErrorFail
	}
	if err := settings.OnError.Choose(o.OnError); err != nil {
		return o, nil, err
	}
	if o.Parallelism == 0 {
		o.Parallelism = runtime.GOMAXPROCS(0)
	}
	settings.Fill(settings.KeyGroups, &o.Groups)
	settings.Fill(settings.CommitInterval, &o.CommitInterval)
	if o.FlushInterval == 0 {
		o.FlushInterval = o.CommitInterval
	}
	settings.Fill(settings.CommitBytes, &o.CommitBytes)
	settings.Fill(settings.InFlight, &o.InFlight)
	settings.Fill(settings.HeldMemory, &o.HeldMemory)
	settings.Fill(settings.TrimBytes, &o.TrimBytes)
	settings.Fill(settings.TrimInterval, &o.TrimInterval)
	settings.Fill(settings.SnapshotInterval, &o.SnapshotInterval)
	settings.Fill(settings.SnapshotBytes, &o.SnapshotBytes)
	settings.Fill(settings.SnapshotMemory, &o.SnapshotMemory)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.GrainInterval == 0 {
		o.GrainInterval = time.Second
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	p, err := progress.ByName(o.Protocol)
	if err != nil {
		return o, nil, err
	}
	if len(o.DropState) > 0 && o.From == "" {
		return o, nil, fmt.Errorf("drop state: %s, but the job begins from no savepoint", strings.Join(o.DropState, ", "))
	}
	if p.Capabilities().Together && o.Standbys > 0 {
		return o, nil, fmt.Errorf("standbys: %d, but protocol %s keeps no change log that one could follow: 0", o.Standbys, o.Protocol)
	}
	for _, b := range []struct {
		option *settings.Option
		v      int64
	}{
		{settings.Parallelism, int64(o.Parallelism)},
		{settings.KeyGroups, int64(o.Groups)},
		{settings.Slots, int64(o.Slots)},
		{settings.CommitInterval, int64(o.CommitInterval)},
		{settings.FlushInterval, int64(o.FlushInterval)},
		{settings.TrimInterval, int64(o.TrimInterval)},
		{settings.SnapshotInterval, int64(o.SnapshotInterval)},
		{settings.Standbys, int64(o.Standbys)},
		{settings.SnapshotBytes, o.SnapshotBytes},
		{settings.SnapshotMemory, int64(o.SnapshotMemory)},
		{settings.CommitBytes, int64(o.CommitBytes)},
		{settings.HeldMemory, int64(o.HeldMemory)},
		{settings.InFlight, int64(o.InFlight)},
		{settings.TrimBytes, o.TrimBytes},
		{settings.MaxRestarts, int64(o.MaxRestarts)},
	} {
		if err := b.option.Check(b.v); err != nil {
			return o, nil, err
		}
	}
	return o, p, nil
}
