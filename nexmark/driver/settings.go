package driver

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/source"
	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/state"
)

// Settings select what runs and how. Zero values of Protocol, Parallelism, Groups, CommitInterval
// and Flush mean package tasks' defaults.
type Settings struct {
	// Job is the job's name in the log; default: the workload's.
	Job string
	// Workload is the name of what runs. If it is empty, NEXMark's query of the number Query does.
	Workload string
	Query    int
	Q2List   bool
	Q7Window time.Duration
	// Own holds values of the workload's own options by name; one that is not there has its default.
	Own    map[string]string `json:",omitempty"`
	Eager  bool
	Logged bool // the events pass through the log first

	// The input is files, or generated events.
	Inputs    []string
	SkipBad   bool
	Generator generator.Config
	// Partitions is the number of partitions of generated events.
	Partitions     int
	WatermarkDelay time.Duration
	// Rate is the most events that are read per second; 0 means no limit.
	Rate int64
	// Live makes generated events arrive at their event times instead of all at once.
	Live bool

	Output string
	Sync   bool // fsync the output before each commit
	// Discard commits rows to the log and writes them nowhere else; readers find them in the log.
	Discard bool

	Protocol       string
	Parallelism    int
	Groups         int
	Slots          int `json:",omitempty"`
	CommitInterval time.Duration
	Flush          time.Duration
	Lead           int64
	TrimBytes      int64
	TrimInterval   time.Duration
	// Checkpoints is where snapshots of state go, one each SnapshotInterval or SnapshotBytes of log
	// (-1: no bound by bytes); nil: no snapshots.
	Checkpoints      checkpoint.Store `json:"-"`
	SnapshotInterval time.Duration
	SnapshotBytes    int64
	Standbys         int
	OnError          string // tasks.Options.OnError
	MaxRestarts      int    // tasks.Options.MaxRestarts
	// From names the savepoint that the job starts from. Savepoint names the one that Run makes
	// when its context ends: the job then stops, with nothing in flight.
	From, Savepoint string
	DropState       []string // tasks.Options.DropState
	// Timeline, if set, is called with a Moment for each TimelineStep of a run or of the measured time
	// of a measurement, by one goroutine.
	Timeline func(Moment) error `json:"-"`
	// Rescales give stages other numbers of tasks while a run or a measurement is made, in this order;
	// CheckRescales must have accepted them. OnRescale, if set, is called with the outcome of each, by
	// one goroutine.
	Rescales  []Rescale       `json:",omitempty"`
	OnRescale func(*Rescaled) `json:"-"`
	// Autoscales are asked of the job when a run or a measurement begins; CheckAutoscales must have
	// accepted them. OnAutoscale, if set, is called with a line for each rescale that follows, by one
	// goroutine.
	Autoscales  []tasks.Autoscale `json:",omitempty"`
	OnAutoscale func(string)      `json:"-"`
	// Balance, if not nil, is asked of the job when a run or a measurement begins; CheckBalance must have
	// accepted it. OnBalance, if set, is called with a line for the newest step, by one goroutine.
	Balance   *tasks.Balance `json:",omitempty"`
	OnBalance func(string)   `json:"-"`
	// OnGrain, if set, is called with a line for each switch of a grain that chooses itself, by one goroutine.
	OnGrain func(string) `json:"-"`
	// GrainInterval is tasks.Options.GrainInterval.
	GrainInterval time.Duration `json:"-"`
	// State stores state that is larger than memory; nil keeps all state in memory.
	State *state.Pebble `json:"-"`
	// Observer is tasks.Options.Observer.
	Observer observe.Observer `json:"-"`
}

func (s *Settings) workload() (*workload.Workload, error) {
	if s.Workload != "" {
		return workload.ByName(s.Workload)
	}
	return workload.OfQuery(s.Query)
}

func (s *Settings) params() *workload.Params {
	p := &workload.Params{Q2List: s.Q2List, Q7Window: s.Q7Window, Logged: s.Logged, Own: s.Own}
	if s.Eager {
		p.Emission = operators.Eager
	}
	return p
}

// input returns where the events come from; with paced, generated events arrive at their own event
// times.
func (s *Settings) input(paced bool) *workload.Input {
	return &workload.Input{
		Files: s.Inputs, SkipBad: s.SkipBad, Generator: s.Generator, Partitions: s.Partitions, Paced: paced,
		Delay: s.WatermarkDelay, Rate: s.Rate,
	}
}

func (s *Settings) options() tasks.Options {
	return tasks.Options{
		Protocol: s.Protocol, Parallelism: s.Parallelism, Groups: s.Groups, Slots: s.Slots,
		CommitInterval: s.CommitInterval, FlushInterval: s.Flush, Lead: s.Lead, TrimBytes: s.TrimBytes, TrimInterval: s.TrimInterval,
		Checkpoints: s.Checkpoints, SnapshotInterval: s.SnapshotInterval, SnapshotBytes: s.SnapshotBytes, Standbys: s.Standbys, OnError: s.OnError, MaxRestarts: s.MaxRestarts, From: s.From, DropState: s.DropState, State: s.State, Observer: s.Observer, GrainInterval: s.GrainInterval,
	}
}

// JobName is the job's name in the log.
func (s *Settings) JobName() string { return cmp.Or(s.Job, s.Workload, fmt.Sprintf("q%d", s.Query)) }

// held returns the settings that are pinned: a later run of the job must have the same.
func (s *Settings) held(w *workload.Workload) (map[string]string, error) {
	in, err := s.describeInput(true)
	if err != nil {
		return nil, err
	}
	emit, src := "final", "chained"
	if s.Eager {
		emit = "eager"
	}
	if s.Logged {
		src = "log"
	}
	held := map[string]string{
		"query": pinned(w), "input": in, "emit": emit, "source": src,
		"q2-list": strconv.FormatBool(s.Q2List), "q7-window": s.Q7Window.String(),
		"watermark-delay": s.WatermarkDelay.String(), "on-bad-input": map[bool]string{false: "fail", true: "skip"}[s.SkipBad],
		"output": filepath.Base(s.Output),
	}
	p := s.params()
	for _, o := range w.Options {
		held[o.Flag] = p.Value(o)
	}
	return held, nil
}

// pinned returns the setting "query" of a workload's jobs. A workload that had a number keeps it
// there, so that jobs that were started under the number continue.
func pinned(w *workload.Workload) string {
	if n := cmp.Or(w.Query, w.Former); n > 0 {
		return strconv.Itoa(n)
	}
	return w.Name
}

// describeInput returns a name for the input that differs for different inputs: files by name,
// first line and (with sizes) length. Without sizes it is what a job is pinned to while a malformed
// line is being corrected.
func (s *Settings) describeInput(sizes bool) (string, error) {
	if len(s.Inputs) == 0 && s.Live {
		c := s.Generator
		return fmt.Sprintf("%d live events, seed %d, %d a second, disorder %v, %d partitions", c.Events, c.Seed, c.Rate, c.Disorder, max(1, s.Partitions)), nil
	}
	if len(s.Inputs) == 0 {
		c := s.Generator
		return fmt.Sprintf("%d generated events, seed %d, %d a second from %d, disorder %v, %d partitions",
			c.Events, c.Seed, c.Rate, c.Base, c.Disorder, max(1, s.Partitions)), nil
	}
	var parts []string
	for _, path := range s.Inputs {
		d, err := s.describeFile(path, sizes)
		if err != nil {
			return "", err
		}
		parts = append(parts, d)
	}
	if !sizes {
		parts = append(parts, "being mended")
	}
	return strings.Join(parts, ", "), nil
}

func (s *Settings) describeFile(path string, sizes bool) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if st.IsDir() {
		return "", fmt.Errorf("%s is a directory, not a file of events", path)
	}
	line, err := bufio.NewReaderSize(f, source.MaxLine).ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if text := strings.TrimSpace(string(line)); text != "" && !s.SkipBad {
		// Do not start a job on a file whose first line it cannot read.
		var p event.Parser
		if _, err := p.Append(nil, []byte(text)); err != nil {
			var bad *event.LineError
			if errors.As(err, &bad) {
				bad.File, bad.Line = path, 1
			}
			return "", err
		}
	}
	h := fnv.New32a()
	h.Write(line)
	d := fmt.Sprintf("%s (first line %08x", filepath.Base(path), h.Sum32())
	if sizes {
		d += fmt.Sprintf(", %d bytes", st.Size())
	}
	return d + ")", nil
}
