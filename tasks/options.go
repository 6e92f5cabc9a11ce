package tasks

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/progress"
	taskruntime "tailrace.dev/tailrace/tasks/runtime"
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
	// a minute, its earlier failures no longer count. 0: DefaultMaxRestarts, negative: no limit. In
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
	// Clock reads the wall clock (default time.Now).
	Clock func() time.Time
}

// DefaultMaxRestarts is the meaning of Options.MaxRestarts 0: half a minute on workers.
const DefaultMaxRestarts = 8

// The values of Options.OnError.
const (
	OnErrorFail       = taskruntime.OnErrorFail
	OnErrorSkip       = taskruntime.OnErrorSkip
	OnErrorDeadLetter = taskruntime.OnErrorDeadLetter
)

func (o Options) withDefaults(name string) (Options, progress.Protocol, error) {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	if o.Name == "" {
		o.Name = name
	}
	if o.Protocol == "" {
		o.Protocol = progress.Protocols()[0].Name()
	}
	def(&o.Parallelism, runtime.GOMAXPROCS(0))
	def(&o.Groups, 64)
	def(&o.CommitBytes, 1<<20)
	def(&o.InFlight, 8)
	def(&o.HeldMemory, 64<<20)
	if o.OnError == "" {
		o.OnError = OnErrorFail
	}
	if !slices.Contains([]string{OnErrorFail, OnErrorSkip, OnErrorDeadLetter}, o.OnError) {
		return o, nil, fmt.Errorf("on error: %q is none of %s, %s, %s", o.OnError, OnErrorFail, OnErrorSkip, OnErrorDeadLetter)
	}
	if o.CommitInterval == 0 {
		o.CommitInterval = 100 * time.Millisecond
	}
	if o.FlushInterval == 0 {
		o.FlushInterval = o.CommitInterval
	}
	if o.TrimBytes == 0 {
		o.TrimBytes = 64 << 20
	}
	if o.TrimInterval == 0 {
		o.TrimInterval = 250 * time.Millisecond
	}
	if o.SnapshotInterval == 0 {
		o.SnapshotInterval = 10 * time.Second
	}
	if o.SnapshotBytes == 0 {
		o.SnapshotBytes = 512 << 20
	}
	def(&o.SnapshotMemory, 32<<20)
	if o.Logger == nil {
		o.Logger = slog.Default()
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
	if _, ok := p.(progress.Together); ok && o.Standbys > 0 {
		return o, nil, fmt.Errorf("standbys: %d, but protocol %s keeps no change log that one could follow: 0", o.Standbys, o.Protocol)
	}
	// bounds: name, value, lowest, highest, why
	for _, b := range []struct {
		name         string
		v, low, high int64
		why          string
	}{
		{"parallelism", int64(o.Parallelism), 1, 1024, "tasks a stage"},
		{"key groups", int64(o.Groups), 1, 1024, "a commit may touch them all, and a group of the log holds 4096 tags"},
		{"commit interval", int64(o.CommitInterval), int64(100 * time.Microsecond), int64(time.Hour), "100µs to 1h"},
		{"flush interval", int64(o.FlushInterval), int64(100 * time.Microsecond), int64(time.Hour), "100µs to 1h"},
		{"trim interval", int64(o.TrimInterval), int64(time.Millisecond), int64(24 * time.Hour), "1ms to 24h"},
		{"snapshot interval", int64(o.SnapshotInterval), int64(time.Millisecond), int64(24 * time.Hour), "1ms to 24h"},
		{"standbys", int64(o.Standbys), 0, 8, "warm copies of a task"},
		{"snapshot bytes", o.SnapshotBytes, -1, 1 << 50, "bytes of log between two snapshots, -1 for no bound by bytes"},
		{"snapshot memory", int64(o.SnapshotMemory), 1 << 10, 1 << 30, "1KiB to 1GiB of changes a task"},
		{"commit bytes", int64(o.CommitBytes), 1 << 10, sharedlog.MaxGroupBytes / 2, "a commit must fit a group of the log"},
		{"held memory", int64(o.HeldMemory), 1, 1 << 40, "bytes of input that does not count yet"},
		{"commits in flight", int64(o.InFlight), 1, 1024, "unacknowledged groups a task"},
	} {
		if b.v < b.low || b.v > b.high {
			return o, nil, fmt.Errorf("%s: %d is out of bounds %d to %d (%s)", b.name, b.v, b.low, b.high, b.why)
		}
	}
	return o, p, nil
}
