package autoscale

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/rescale/policy"
	"tailrace.dev/tailrace/tasks/status"
)

// every is the time between two samples.
const every = time.Second

// remembered is how many rescales a State has.
const remembered = 64

// Job is what a Scaler needs of the job. Its methods are safe for concurrent use.
type Job interface {
	Status() []status.Snapshot
	// Layout is the job's layout as of the newest plan.
	Layout() *layout.Layout
	// Busy reports whether key groups are moving, or a savepoint is made.
	Busy() bool
	Rescale(ctx context.Context, r rescale.Request) (*rescale.Result, error)
}

// State is what a Scaler has done.
type State struct {
	Request
	// Tasks is the number of tasks that the stage has, Wanted the number that it is to have, and Why
	// the reason. Wanted is 0 before there is a sample.
	Tasks  int    `json:"tasks"`
	Wanted int    `json:"wanted"`
	Why    string `json:"why"`
	// Count is the number of rescales, Rescales are the newest of them.
	Count    int        `json:"rescale_count"`
	Rescales []Rescaled `json:"rescales"`
}

// Rescaled is a rescale that a policy has decided.
type Rescaled struct {
	At  time.Time `json:"at"` // when it began
	Why string    `json:"why"`
	rescale.Result
	// Error says why it failed; else it is empty.
	Error string `json:"error,omitempty"`
}

// Scaler scales one stage of a job.
type Scaler struct {
	job     Job
	log     sharedlog.Log
	logger  *slog.Logger
	request Request
	index   int // of the stage
	begin   time.Time

	mu    sync.Mutex
	state State
}

// New returns a scaler of the stage with an index. The request must be one that the job can carry
// out.
func New(job Job, log sharedlog.Log, logger *slog.Logger, index int, r Request) *Scaler {
	return &Scaler{
		job: job, log: log, logger: logger, request: r, index: index, begin: time.Now(),
		state: State{Request: r, Tasks: job.Layout().Stages[index].Tasks, Why: "there is no sample yet"},
	}
}

// State returns what the scaler has done. Safe for concurrent use.
func (s *Scaler) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.state
	c.Tasks, c.Rescales = s.job.Layout().Stages[s.index].Tasks, slices.Clone(c.Rescales)
	return c
}

// Run scales the stage until ctx ends.
func (s *Scaler) Run(ctx context.Context) {
	p, m := policy.New(policy.Bounds{Min: s.request.Min, Max: s.request.Max}), NewMeter(s.request.Stage)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var ended, took int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		tail, err := s.log.Tail(ctx)
		if err != nil {
			continue // the log is away; there is no sample, and so no decision
		}
		l := s.job.Layout()
		sample := m.Sample(s.now(), tail, &l.Stages[s.index], s.job.Status())
		if sample == nil {
			continue
		}
		sample.Rescaling, sample.Ended, sample.Took = s.job.Busy(), ended, took
		d := p.Next(sample)
		s.decided(&d)
		if d.Tasks == len(sample.Tasks) {
			continue
		}
		began := s.now()
		s.rescale(ctx, len(sample.Tasks), &d)
		ended = s.now()
		took = ended - began
	}
}

// now returns the time since the scaler began, in ms.
func (s *Scaler) now() int64 { return time.Since(s.begin).Milliseconds() }

func (s *Scaler) decided(d *policy.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Wanted, s.state.Why = d.Tasks, d.Why
}

// rescale carries out a decision.
func (s *Scaler) rescale(ctx context.Context, from int, d *policy.Decision) {
	did := Rescaled{At: time.Now(), Why: d.Why, Result: rescale.Result{Stage: s.request.Stage, From: from, To: d.Tasks}}
	r, err := s.job.Rescale(ctx, rescale.Request{Stage: s.request.Stage, Tasks: d.Tasks, ID: "autoscale"})
	if ctx.Err() != nil {
		return // the next process of the job continues it
	}
	if err == nil {
		did.Result = *r
		s.logger.Debug("autoscaled", "stage", did.Stage, "from", did.From, "to", did.To, "why", did.Why)
	} else {
		did.Error = err.Error()
		s.logger.Warn("a stage was not autoscaled", "stage", did.Stage, "from", did.From, "to", did.To, "why", did.Why, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Count++
	if s.state.Rescales = append(s.state.Rescales, did); len(s.state.Rescales) > remembered {
		s.state.Rescales = slices.Delete(s.state.Rescales, 0, 1)
	}
}
