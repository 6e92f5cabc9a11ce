package balance

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/status"
)

// every is the time between two samples, if the steps are not closer.
const every = time.Second

// Job is what a Balancer needs of the job. Its methods are safe for concurrent use.
type Job interface {
	Status() []status.Snapshot
	// Layout is the job's layout as of the newest plan.
	Layout() *layout.Layout
	// Busy reports whether key groups are moving, or a savepoint is made.
	Busy() bool
	Rescale(ctx context.Context, r rescale.Request) (*rescale.Result, error)
}

// State is what a Balancer has measured and done.
type State struct {
	Request
	Tasks     int `json:"tasks"`
	KeyGroups int `json:"key_groups"`
	// Degree and Extra are those of the newest 5 s, Mean the mean of Degree since the Balancer began,
	// over its samples that have enough items.
	Degree float64 `json:"degree"`
	Extra  float64 `json:"extra"`
	Mean   float64 `json:"degree_mean"`
	// ByTask is the number of items that came for the key groups of each task since the Balancer began.
	ByTask []int64 `json:"by_task"`
	// Why says why there was no step at the newest sample; empty: there was one.
	Why string `json:"why"`
	// Switches is the number of steps, MovedGroups and SettledMS are of all of them together, SlowestMS
	// is of the slowest one. Void are those that came too late, because the owners had changed.
	Switches    int     `json:"switches"`
	MovedGroups int     `json:"moved_groups"`
	SettledMS   float64 `json:"settled_ms"`
	SlowestMS   float64 `json:"settled_max_ms"`
	Void        int     `json:"void"`
	// Error is the newest error of a step; else it is empty.
	Error string `json:"error,omitempty"`
	// Newest is the newest step; nil: there was none.
	Newest *Step `json:"newest,omitempty"`

	degrees float64 // the sum of the samples' degrees
	samples int
}

// Since returns what has been measured and done since an earlier State of the same Balancer.
func (s State) Since(from *State) State {
	s.ByTask = slices.Clone(s.ByTask)
	for i := range min(len(s.ByTask), len(from.ByTask)) {
		s.ByTask[i] -= from.ByTask[i]
	}
	s.degrees -= from.degrees
	s.samples -= from.samples
	s.Mean = s.degrees / float64(max(s.samples, 1))
	s.Switches -= from.Switches
	s.MovedGroups -= from.MovedGroups
	s.SettledMS -= from.SettledMS
	s.Void -= from.Void
	return s
}

// Step is a step that has been made.
type Step struct {
	rescale.Result
	// Degree is what it was, Planned what it should have become.
	Degree  float64 `json:"degree"`
	Planned float64 `json:"planned"`
}

// Balancer balances one stage of a job.
type Balancer struct {
	job     Job
	logger  *slog.Logger
	request Request
	plan    route.Planner
	index   int      // of the stage
	streams []string // its inputs
	began   time.Time
	meter   meter

	mu    sync.Mutex
	state State
}

// New returns a balancer of the stage with an index. Check must have accepted the request.
func New(job Job, logger *slog.Logger, index int, r Request) (*Balancer, error) {
	plan, err := route.ByName(r.Dispatch)
	if err != nil {
		return nil, err
	}
	return &Balancer{
		job: job, logger: logger, request: r, plan: plan, index: index, streams: inputs(job.Layout(), index), began: time.Now(),
		state: State{Request: r, Why: "there is no sample yet"},
	}, nil
}

// State returns what the balancer has done. Safe for concurrent use.
func (b *Balancer) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.state
	st := &b.job.Layout().Stages[b.index]
	c.Tasks, c.KeyGroups, c.ByTask = st.Tasks, st.Groups, slices.Clone(c.ByTask)
	return c
}

// Run balances the stage until ctx ends, or stop is closed. It ends its step before it stops: where
// nothing else continues it, the stage would keep a goal that is not reached, under which there is no
// other step.
func (b *Balancer) Run(ctx context.Context, stop <-chan struct{}) {
	core := route.NewCore(b.request.When, b.plan)
	each := every
	if e := time.Duration(b.request.When.Every) * time.Millisecond; e > 0 {
		each = min(each, e)
	}
	tick := time.NewTicker(each)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stop:
			return
		case <-tick.C:
		}
		select {
		case <-stop: // during the step
			return
		default:
		}
		busy := b.job.Busy()
		st := b.job.Layout().Stages[b.index]
		s := route.Sample{
			At: time.Since(b.began).Milliseconds(), Owners: slices.Clone(st.Owner), Tasks: st.Tasks, Busy: busy,
			Items: make([]int64, st.Groups),
		}
		if len(b.request.Shares) == st.Tasks {
			s.Shares = b.request.Shares
		}
		b.meter.sample(b.streams, b.job.Status(), &s)
		d := core.Next(&s)
		b.decided(&d, route.Tasks(s.Items, s.Owners, s.Tasks))
		if d.Owners != nil {
			b.step(ctx, &s, &d)
		}
	}
}

// decided notes a decision, and the items that came for each task since the previous one.
func (b *Balancer) decided(d *route.Decision, by []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := &b.state
	st.Why, st.Degree, st.Extra = d.Why, d.Degree, d.Extra
	if d.Measured {
		st.degrees += d.Degree
		st.samples++
		st.Mean = st.degrees / float64(st.samples)
	}
	for len(st.ByTask) < len(by) {
		st.ByTask = append(st.ByTask, 0)
	}
	for i, n := range by {
		st.ByTask[i] += n
	}
}

// step carries out a decision.
func (b *Balancer) step(ctx context.Context, s *route.Sample, d *route.Decision) {
	r, err := b.job.Rescale(ctx, rescale.Request{Stage: b.request.Stage, Tasks: s.Tasks, Owners: d.Owners, Have: s.Owners, ID: "balance"})
	if ctx.Err() != nil || errors.Is(err, runtime.ErrEnded) || errors.Is(err, rescale.ErrStageEnded) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	st := &b.state
	switch {
	case errors.Is(err, rescale.ErrChanged):
		st.Void++
		st.Why = "the owners have changed meanwhile, or a rescale has not reached its goal"
	case err != nil:
		st.Error = err.Error()
		b.logger.Warn("key groups were not balanced", "stage", b.request.Stage, "error", err)
	default:
		st.Switches++
		st.MovedGroups += r.GroupsMoved
		st.SettledMS += r.SettledMS
		st.SlowestMS = max(st.SlowestMS, r.SettledMS)
		st.Newest = &Step{*r, d.Degree, d.Planned}
		b.logger.Debug("balanced", "stage", b.request.Stage, "moved", r.GroupsMoved, "degree", d.Degree, "planned", d.Planned)
	}
}

// meter reads what has come for each key group of a stage: what the tasks before it have appended to its
// inputs. What its own tasks have processed would say, while they are behind, which of them had a
// processor.
type meter struct {
	read map[sender]reading
}

// sender is an output of a task.
type sender struct {
	stage  string
	task   int
	stream string
}

type reading struct {
	instance uint64
	items    []uint64 // by key group
}

// sample sets the items of each group. An instance that has started since the last reading has sent what
// it shows. One that does not answer, because its worker does not, counts when it does. The first sample
// has no items.
func (m *meter) sample(streams []string, all []status.Snapshot, s *route.Sample) {
	first := m.read == nil
	if first {
		m.read = make(map[sender]reading, len(all))
	}
	for i := range all {
		t := &all[i]
		for k := range t.Sent {
			out := &t.Sent[k]
			if !slices.Contains(streams, out.Stream) {
				continue
			}
			from := sender{t.Stage, t.Task, out.Stream}
			if was := m.read[from]; !first {
				was.add(s.Items, t.Instance, out.ByGroup)
			}
			m.read[from] = reading{t.Instance, out.ByGroup}
		}
	}
}

// add adds the items that a sender has sent since a reading to those of each group.
func (was *reading) add(items []int64, instance uint64, sent []uint64) {
	for g := range min(len(sent), len(items)) {
		n := sent[g]
		if was.instance == instance && g < len(was.items) {
			n -= min(was.items[g], n) // an instance that starts shows the number of the one before for a moment
		}
		items[g] += int64(n)
	}
}
