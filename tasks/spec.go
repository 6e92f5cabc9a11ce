package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/deadletter"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/retention"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/tags"
)

// Spec is a job as data. It holds everything that a process without the job's functions needs, such
// as a task manager, and what a worker needs to build them. Describe makes it.
type Spec struct {
	// Name is the job's name in the log, Format the format that it is described in.
	Name   string `json:"name"`
	Format string `json:"format"`
	// Program names the program that can run the job, Args is what that program builds the plan of,
	// and Labels is what a worker may select jobs by ("query": "5").
	Program string            `json:"program"`
	Args    json.RawMessage   `json:"args,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Plan is the shape of the job.
	Plan *exec.Plan `json:"plan"`
	// The other fields are Options, with defaults filled in.
	Protocol       string        `json:"protocol"`
	Parallelism    int           `json:"parallelism"`
	Groups         int           `json:"key_groups"`
	Slots          int           `json:"slots,omitempty"`
	CommitInterval time.Duration `json:"commit_interval_ns"`
	FlushInterval  time.Duration `json:"flush_interval_ns"`
	CommitBytes    int           `json:"commit_bytes"`
	InFlight       int           `json:"in_flight"`
	// SnapshotInterval and SnapshotBytes say how often a worker with a checkpoint store makes
	// snapshots.
	SnapshotInterval time.Duration `json:"snapshot_interval_ns,omitempty"`
	SnapshotBytes    int64         `json:"snapshot_bytes,omitempty"`
	// OnError says what happens to items that the job's code cannot process; "" means fail.
	OnError string `json:"on_error,omitempty"`
	// MaxRestarts limits the restarts of a task that fails by the job's own code:
	// Options.MaxRestarts.
	MaxRestarts int `json:"max_restarts,omitempty"`
	// Standbys is how many other workers keep a warm copy of each task's state.
	Standbys int `json:"standbys,omitempty"`
	// From is the savepoint that the job starts from.
	From string `json:"from_savepoint,omitempty"`
	// DropState names the parts of that savepoint that are dropped: Options.DropState.
	DropState []string          `json:"drop_state,omitempty"`
	Settings  map[string]string `json:"settings,omitempty"`
}

// Describe returns a job as data. If workers are to run it, the caller fills in Program, Args and
// Labels.
func Describe(plan *exec.Plan, o Options) (*Spec, error) {
	o, protocol, err := o.withDefaults(plan.Name)
	if err != nil {
		return nil, err
	}
	plan = plan.WithSlots(o.Slots)
	s := &Spec{
		Name: o.Name, Format: formatOf(plan, protocol), Plan: plan, Slots: o.Slots, Protocol: o.Protocol, Parallelism: o.Parallelism, Groups: o.Groups,
		CommitInterval: o.CommitInterval, FlushInterval: o.FlushInterval, CommitBytes: o.CommitBytes, InFlight: o.InFlight,
		SnapshotInterval: o.SnapshotInterval, SnapshotBytes: o.SnapshotBytes, OnError: o.OnError, MaxRestarts: o.MaxRestarts, Standbys: o.Standbys, From: o.From, DropState: o.DropState, Settings: o.Settings,
	}
	return s, s.Check()
}

// Check returns an error that says what is wrong with a job, before anything is done for it.
func (s *Spec) Check() error {
	if err := tags.CheckName(s.Name); err != nil {
		return fmt.Errorf("job name: %w", err)
	}
	if s.Plan == nil || len(s.Plan.Stages) == 0 {
		return fmt.Errorf("job %q: it has no plan", s.Name)
	}
	if !RunsFormat(Format, s.Format) {
		return fmt.Errorf("job %q was described in format %s, this program uses %s: use programs of one release", s.Name, s.Format, Format)
	}
	if err := s.checkKeyed(); err != nil {
		return fmt.Errorf("job %q: %w", s.Name, err)
	}
	for _, st := range s.Plan.Stages {
		for _, id := range slices.Concat(st.Inputs, st.Outputs) {
			if id < 0 || id >= len(s.Plan.Streams) {
				return fmt.Errorf("job %q: stage %q has stream %d, of %d", s.Name, st.Name, id, len(s.Plan.Streams))
			}
		}
	}
	_, protocol, err := s.options(Options{}).withDefaults(s.Name)
	if err != nil {
		return fmt.Errorf("job %q: %w", s.Name, err)
	}
	for _, st := range s.Plan.Stages {
		if protocol.Capabilities().Coordinator && st.Appends != "" {
			return fmt.Errorf("job %q: the sink %q appends its rows to the log (tag %q) together with its commits, which a coordinator appends under the protocol %s: use another protocol, or another sink",
				s.Name, st.Name, st.Appends, s.Protocol)
		}
		if st.Switches() && !protocol.Capabilities().Rescales {
			return fmt.Errorf("job %q: the tasks of stage %q cannot change their grain while they run (WatermarkPer(Auto)) under the protocol %s: use fused or marker, or Key with a delay of %d ms or more, or Task",
				s.Name, st.Name, s.Protocol, st.Grain.Delay)
		}
	}
	if s.Slots > 0 {
		if err := s.checkSlots(protocol.Capabilities()); err != nil {
			return fmt.Errorf("job %q: %w", s.Name, err)
		}
	}
	_, err = s.layout(s.Plan, s.Name)
	return err
}

// options returns o with the spec's settings.
func (s *Spec) options(o Options) Options {
	o.Name, o.Protocol, o.Parallelism, o.Groups, o.Slots, o.Settings = s.Name, s.Protocol, s.Parallelism, s.Groups, s.Slots, s.Settings
	o.CommitInterval, o.FlushInterval, o.CommitBytes, o.InFlight = s.CommitInterval, s.FlushInterval, s.CommitBytes, s.InFlight
	o.SnapshotInterval, o.SnapshotBytes, o.OnError, o.MaxRestarts, o.Standbys, o.From, o.DropState = s.SnapshotInterval, s.SnapshotBytes, s.OnError, s.MaxRestarts, s.Standbys, s.From, s.DropState
	return o
}

// held returns the pinned settings: they must not change while the job's records are in the log.
func (s *Spec) held() map[string]string {
	m := map[string]string{
		"protocol":      s.Protocol,
		"parallelism":   strconv.Itoa(s.Parallelism),
		"key groups":    strconv.Itoa(s.Groups),
		"plan":          planHash(s.Plan),
		"savepoint":     s.From,
		tablesSetting:   tablesHash(s.Plan),
		"dropped state": strings.Join(s.DropState, ","),
	}
	m["dead letters"] = "" // as for jobs that are older than dead letters
	if s.OnError == OnErrorDeadLetter {
		m["dead letters"] = "kept"
	}
	if s.Slots > 0 {
		m[slotsSetting] = strconv.Itoa(s.Slots)
	}
	maps.Copy(m, s.Settings)
	return m
}

func (s *Spec) layout(plan *exec.Plan, id string) (*layout.Layout, error) {
	plan = plan.WithSlots(s.Slots)
	if s.OnError == OnErrorDeadLetter {
		var err error
		if plan, err = deadletter.With(plan); err != nil {
			return nil, fmt.Errorf("job %q: %w", s.Name, err)
		}
	}
	return layout.New(plan, id, s.Groups, s.Parallelism)
}

// Tasks returns how many tasks each stage has, in the order of the plan.
func (s *Spec) Tasks() ([]int, error) {
	l, err := s.layout(s.Plan, s.Name)
	if err != nil {
		return nil, err
	}
	var n []int
	for _, st := range l.Stages {
		n = append(n, st.Tasks)
	}
	return n, nil
}

// config returns the configuration of the job's tasks in this process: the job's settings come from
// the spec, those of the process from o.
func (s *Spec) config(log sharedlog.Log, plan *exec.Plan, id string, o Options) (*runtime.Config, error) {
	o, protocol, err := s.options(o).withDefaults(s.Name)
	if err != nil {
		return nil, err
	}
	layout, err := s.layout(plan, id)
	if err != nil {
		return nil, err
	}
	cfg := &runtime.Config{
		Log: log, Layout: layout, Protocol: protocol,
		CommitInterval: s.CommitInterval, FlushInterval: s.FlushInterval, CommitBytes: s.CommitBytes, InFlight: s.InFlight, HeldMemory: o.HeldMemory, OnError: o.OnError,
		TrimBytes: uint64(max(o.TrimBytes, 0)), TrimInterval: o.TrimInterval, Lead: o.Lead,
		Checkpoints: o.Checkpoints, SnapshotInterval: o.SnapshotInterval, SnapshotBytes: o.SnapshotBytes, SnapshotMemory: o.SnapshotMemory, Standbys: o.Standbys > 0, State: o.State,
		Savepoint: s.savepoint(layout, protocol), From: s.From, DropState: s.DropState,
		Observer: o.Observer, Peers: o.Peers, GrainInterval: o.GrainInterval, Clock: o.Clock, Logger: o.Logger.With("job", id),
	}
	cfg.Savepoint.Observer = o.Observer
	cfg.Commits = commits(cfg, o.Logger)
	if cfg.Handover = mover(cfg); cfg.Handover == nil && s.Slots > 0 {
		return nil, fmt.Errorf("job %q: slots: %d: %w", s.Name, s.Slots, runtime.ErrNoHandover)
	}
	return cfg, nil
}

// ErrGraph is in the error of Join when the program's plan is not the job's.
var ErrGraph = errors.New("another job graph")

// Executor runs those of a job's tasks that the manager assigns to this process.
type Executor = runtime.Executor

// Hold is a lease that stops trimming of a job's change logs while an outside reader (standby,
// savepoint) uses them.
type Hold = retention.Hold

// TakeHold takes a Hold (retention.TakeHold).
func TakeHold(ctx context.Context, log sharedlog.Log, job, who string, from sharedlog.LSN) (*Hold, error) {
	return retention.TakeHold(ctx, log, job, who, from)
}

// Handle refers to a task that an Executor has started.
type Handle = runtime.Handle

// Errors with which a task may end (Handle.Err).
var (
	ErrStopped = runtime.ErrStopped
	ErrNoStore = runtime.ErrNoStore
)

// Join prepares to run tasks of a job that its manager has registered under id. plan is what the
// program made of the spec's arguments: Join refuses it with ErrGraph if it is not the plan in the
// log. The log determines which task owns which key groups (pitfall T7).
func Join(ctx context.Context, log sharedlog.Log, spec *Spec, id string, plan *exec.Plan, o Options) (*Executor, error) {
	plan = plan.WithSlots(spec.Slots)
	if have, want := planHash(plan), planHash(spec.Plan); have != want {
		return nil, fmt.Errorf("job %q: %w: this program makes plan %s of it, the job is plan %s; is it another version of the program?", spec.Name, ErrGraph, have, want)
	}
	if diff := tablesDiffer(spec.Plan, plan); diff != "" {
		return nil, fmt.Errorf("job %q: %w: %s; is it another version of the program? A job continues under another plan from a savepoint (--from)", spec.Name, ErrGraph, diff)
	}
	cfg, err := spec.joined(ctx, log, plan, id, o)
	if err != nil {
		return nil, err
	}
	return runtime.NewExecutor(cfg), nil
}

// joined is config for tasks of a job that is in the log: the newest plan there says which task owns
// which key groups.
func (s *Spec) joined(ctx context.Context, log sharedlog.Log, plan *exec.Plan, id string, o Options) (*runtime.Config, error) {
	cfg, err := s.config(log, plan, id, o)
	if err != nil {
		return nil, err
	}
	tail, err := log.Tail(ctx)
	if err != nil {
		return nil, err
	}
	have, _, err := records.LastPlan(ctx, log, id, tail)
	if err != nil {
		return nil, err
	}
	if have == nil {
		return nil, fmt.Errorf("job %q is not in the log: is it the log of another cluster?", id)
	}
	if cfg.Plan = have; have.Number > 1 && cfg.Handover == nil {
		return nil, fmt.Errorf("job %q has been rescaled, which this program cannot continue", id)
	}
	if err := s.checkNewest(id, have); err != nil {
		return nil, err
	}
	if cfg.Layout, err = owners(cfg.Layout, have, planHash(plan.WithSlots(s.Slots))); err != nil {
		return nil, err
	}
	cfg.Savepoint.Started, err = routing.Started(cfg.Layout, have)
	return cfg, err
}

// Together reports whether the tasks of a stage start, commit and fail together, as one unit with
// all other stages for which it reports true.
func (s *Spec) Together(stage int) bool {
	p, err := progress.ByName(s.Protocol)
	return err == nil && p.Capabilities().TakesPart(s.Plan.Stages[stage].Sink)
}

// owners returns the layout with the tasks, and the owners of key groups, of the plan in the log. The
// first plan has the tasks that the job's settings say.
func owners(l *layout.Layout, p *envelope.Plan, hash string) (_ *layout.Layout, err error) {
	differ := func(format string, args ...any) (*layout.Layout, error) {
		return nil, fmt.Errorf("job %q: %w: "+format, append([]any{l.Job, ErrGraph}, args...)...)
	}
	if !bytes.Equal(p.Fingerprint, []byte(hash)) || len(p.Stages) != len(l.Stages) {
		return differ("the log has plan %s of %d stages, this program %s of %d", p.Fingerprint, len(p.Stages), hash, len(l.Stages))
	}
	for i, st := range p.Stages {
		mine := &l.Stages[i]
		if st.Name != l.Plan.Stages[i].Name || p.Number <= 1 && st.Tasks != mine.Tasks || len(st.Owners) != mine.Groups {
			return differ("stage %q has %d tasks and %d key groups in the log, %q has %d and %d here",
				st.Name, st.Tasks, len(st.Owners), l.Plan.Stages[i].Name, mine.Tasks, mine.Groups)
		}
		if l, err = l.With(i, st.Tasks, st.Owners); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Same returns an error (ErrSettings) that lists where two descriptions of a job differ in pinned
// settings.
func (s *Spec) Same(as *Spec) error { return same(s.Name, as.held(), s.held()) }

// Registered returns the id that the log has for a job of this name and these settings; "": it has none.
func (s *Spec) Registered(ctx context.Context, log sharedlog.Log) (id string, err error) {
	rec, _, err := readJob(ctx, log, s.Name)
	if err != nil || rec == nil || same(s.Name, rec.Settings, s.held()) != nil {
		return "", err
	}
	return rec.ID, nil
}

// Forget frees a job's name in the log, if the job has this id there. Its records stay, under an id that is never used again.
func Forget(ctx context.Context, log sharedlog.Log, name, id string) error {
	rec, old, err := readJob(ctx, log, name)
	if err != nil || old == nil || id != "" && rec.ID != id {
		return err
	}
	_, err = log.CompareAndSet(ctx, tags.JobKey(name), old, nil)
	return err
}
