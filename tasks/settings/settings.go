// Package settings has the options of a job, each written once: its name in errors, its flag with
// the help text, its default, and its bounds with the reason. Package tasks fills in and checks
// Options with them, programs make their flags of them (internal/cli).
//
// Values are integers: durations are in nanoseconds, sizes in bytes. The package is pure.
package settings

import (
	"fmt"
	"slices"
	"strings"

	"tailrace.dev/tailrace/sharedlog"
)

// Option describes an option of a job.
type Option struct {
	// Name is its name in errors.
	Name string
	// Flag is its flag, without dashes; empty: no program has one. Help is the flag's text.
	Flag, Help string
	// Default is the value that 0 stands for. For 0 the caller computes the default.
	Default int64
	// Low and High are the bounds of a number, for the reason Why.
	Low, High int64
	Why       string
	// If Least is not 0, the flag takes Unbounded, which means that there is no bound, and numbers
	// from Least on.
	Least, Unbounded int64
	// Values are those of an option that is a word, the default first.
	Values []string
}

const (
	microsecond int64 = 1e3
	millisecond int64 = 1e6
	second      int64 = 1e9
	hour              = 3600 * second

	kib int64 = 1 << 10
	mib int64 = 1 << 20
	gib int64 = 1 << 30
)

// The values of OnError.
const (
	Fail       = "fail"
	Skip       = "skip"
	DeadLetter = "dead-letter"
)

// DefaultMaxRestarts is the default of MaxRestarts: they take half a minute.
const DefaultMaxRestarts = 8

// The options. All lists them.
var (
	Protocol = &Option{
		Name: "protocol", Flag: "protocol", Values: []string{"fused", "marker", "txn", "aligned", "aligned-early", "unsafe"},
		Help: "commit protocol: fused (one atomic append a commit), marker (Impeller's progress markers), txn (Kafka Streams' transactions), aligned (Flink's aligned checkpoints, one each --commit-interval), aligned-early (the same, rows are shown before they are covered) or unsafe (no guarantee)",
	}
	Parallelism = &Option{
		Name: "parallelism", Flag: "parallelism", Low: 1, High: 1024, Why: "tasks a stage",
		Help: "tasks a stage (default: the processors)",
	}
	KeyGroups = &Option{
		Name: "key groups", Flag: "key-groups", Default: 64, Low: 1, High: 1024, Why: "a commit may touch them all, and a group of the log holds 4096 tags",
		Help: "key groups a stream: the unit in which work is spread",
	}
	Slots = &Option{
		Name: "slots", Flag: "slots", Low: 0, High: 256, Why: "a commit may touch them all, beside the key groups",
		Help: "slots a stream: further key groups, in which --balance places heavy keys and parts of key groups where whole ones are too coarse. From a savepoint (--from) that has some in use: as many",
	}
	CommitInterval = &Option{
		Name: "commit interval", Flag: "commit-interval", Default: 100 * millisecond, Low: 100 * microsecond, High: hour, Why: "100µs to 1h",
		Help: "longest time between processing an item and committing it",
	}
	FlushInterval = &Option{
		Name: "flush interval", Flag: "flush", Low: 100 * microsecond, High: hour, Why: "100µs to 1h",
		Help: "longest time outputs wait at a source, and under marker and txn at every task (default: the commit interval)",
	}
	CommitBytes = &Option{
		Name: "commit bytes", Default: mib, Low: kib, High: sharedlog.MaxGroupBytes / 2, Why: "a commit must fit a group of the log",
	}
	HeldMemory = &Option{
		Name: "held memory", Default: 64 * mib, Low: 1, High: 1 << 40, Why: "bytes of input that does not count yet",
	}
	InFlight = &Option{
		Name: "commits in flight", Default: 8, Low: 1, High: 1024, Why: "unacknowledged groups a task",
	}
	TrimBytes = &Option{
		Name: "trim bytes", Default: 64 * mib, Low: -1 << 62, High: 1 << 62, Why: "bytes of log between two trims, negative for none",
	}
	TrimInterval = &Option{
		Name: "trim interval", Default: 250 * millisecond, Low: millisecond, High: 24 * hour, Why: "1ms to 24h",
	}
	SnapshotInterval = &Option{
		Name: "snapshot interval", Flag: "snapshot-interval", Default: 10 * second, Low: millisecond, High: 24 * hour, Why: "1ms to 24h",
		Help: "how often a snapshot of state is made",
	}
	SnapshotBytes = &Option{
		Name: "snapshot bytes", Flag: "snapshot-bytes", Default: 512 * mib, Low: -1, High: 1 << 50, Why: "bytes of log between two snapshots, -1 for no bound by bytes",
		Least: mib, Unbounded: 0,
		Help: "make one sooner when so much has come into the log: a job with state keeps up to twice that on disk, or two intervals; 0 = no bound by bytes",
	}
	SnapshotMemory = &Option{
		Name: "snapshot memory", Default: 32 * mib, Low: kib, High: gib, Why: "1KiB to 1GiB of changes a task",
	}
	Standbys = &Option{
		Name: "standbys", Flag: "standbys", Low: 0, High: 8, Why: "warm copies of a task",
		Help: "how many workers keep a warm copy of each task's state, to take over from at once",
	}
	OnError = &Option{
		Name: "on error", Flag: "on-error", Values: []string{Fail, Skip, DeadLetter},
		Help: "an item (or a timer) that the job's functions cannot process: fail (the task fails with an error that names it), skip (count it and continue) or dead-letter (also keep it)",
	}
	MaxRestarts = &Option{
		Name: "max restarts", Flag: "max-restarts", Default: DefaultMaxRestarts, Low: -1, High: 1 << 31, Why: "-1 for no limit",
		Least: 1, Unbounded: -1,
		Help: "how often a task on a worker restarts after failures of the job's own functions before the job fails; -1: no limit",
	}
	From = &Option{
		Name: "from", Flag: "from",
		Help: "start from this savepoint of another job; parallelism and protocol may differ",
	}
	DropState = &Option{
		Name: "drop state", Flag: "drop-state",
		Help: "with --from: state that the plan has no place for and that is given up, `STAGE/OPERATOR` or STAGE",
	}
)

// All returns the options.
func All() []*Option {
	return []*Option{
		Protocol, Parallelism, KeyGroups, Slots, CommitInterval, FlushInterval, CommitBytes, HeldMemory, InFlight, TrimBytes, TrimInterval,
		SnapshotInterval, SnapshotBytes, SnapshotMemory, Standbys, OnError, MaxRestarts, From, DropState,
	}
}

// Fill sets *v to the option's default if it is 0.
func Fill[T ~int | ~int64](o *Option, v *T) {
	if *v == 0 {
		*v = T(o.Default)
	}
}

// Check returns an error if a number is out of bounds.
func (o *Option) Check(v int64) error {
	if v < o.Low || v > o.High {
		return fmt.Errorf("%s: %d is out of bounds %d to %d (%s)", o.Name, v, o.Low, o.High, o.Why)
	}
	return nil
}

// Choose returns an error if a word is none of the option's values.
func (o *Option) Choose(v string) error {
	if !slices.Contains(o.Values, v) {
		return fmt.Errorf("%s: %q is none of %s", o.Name, v, strings.Join(o.Values, ", "))
	}
	return nil
}
