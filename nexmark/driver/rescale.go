package driver

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/rescale"
)

// Rescale asks to give a stage another number of tasks at a moment of a run.
type Rescale struct {
	// After is the time from the start of the job in this process. If Events is not 0, the moment is
	// when the job has read that many events instead.
	After  time.Duration
	Events uint64
	// Stage is the stage's name; if it is empty, the stage is the first of those with the most key
	// groups that are neither source nor sink.
	Stage string
	Tasks int
	// Mode, Batch, Strategy and Late are those of tasks.Rescale.
	Mode     string
	Batch    int
	Strategy string
	Late     bool
}

// When returns the moment as the command line has it: 10s, or a number of events.
func (r *Rescale) When() string {
	if r.Events > 0 {
		return fmt.Sprint(r.Events)
	}
	return r.After.String()
}

// Rescaled is the outcome of a Rescale.
type Rescaled struct {
	At string `json:"at"` // Rescale.When
	tasks.Rescaled
	// NotDone says why the stage was not given these tasks: the run ended before. Else it is empty.
	NotDone string `json:"not_done,omitempty"`
	// Effect is what the latency of a measurement shows of it; nil: it was not in the measured time.
	Effect *Effect `json:"effect,omitempty"`

	// Moved says how the state of the key groups came that moved, from the request until the next one or
	// the end of the run; nil: none had moved, or the tasks have ended.
	Moved *Moved `json:"moved,omitempty"`

	asked  time.Time
	before []tasks.Status
}

// Effects returns the line that shows the effect, empty if it was not measured.
func (r *Rescaled) Effects() string {
	if r.Effect == nil {
		return ""
	}
	return fmt.Sprintf("rescale %s:%s=%d: visible p99 %v ms before, peak %v ms, as before after %v ms", r.At, r.Stage, r.To, r.Effect.P99Before, r.Effect.Peak, r.Effect.Back)
}

// String returns the line that the command shows to its user.
func (r *Rescaled) String() string {
	if r.NotDone != "" {
		return fmt.Sprintf("rescale %s:%s=%d was not done: %s", r.At, r.Stage, r.To, r.NotDone)
	}
	return fmt.Sprintf("rescale %s:%s=%d: %d → %[3]d tasks, %[5]d of %d key groups moved in %d steps, %.1f ms",
		r.At, r.Stage, r.To, r.From, r.GroupsMoved, r.KeyGroups, r.Steps, r.SettledMS)
}

// CheckRescales fills in the stages of Rescales and refuses those that are impossible. It opens
// nothing.
func (s *Settings) CheckRescales() error {
	if len(s.Rescales) == 0 {
		return nil
	}
	check, err := s.rescalable(false)
	if err != nil {
		return err
	}
	for i := range s.Rescales {
		if err := check(&s.Rescales[i].Stage, s.Rescales[i].Tasks); err != nil {
			return err
		}
	}
	return nil
}

// rescalable returns a function that fills in a stage and refuses a number of tasks for it if that is
// impossible, to a policy or on request.
func (s *Settings) rescalable(policy bool) (check func(stage *string, n int) error, err error) {
	plan, err := Rows(*s)
	if err != nil {
		return nil, err
	}
	spec, err := tasks.Describe(plan, s.options())
	if err != nil {
		return nil, err
	}
	protocol, err := progress.ByName(spec.Protocol)
	if err != nil {
		return nil, err
	}
	l, err := layout.New(plan, spec.Name, spec.Groups, spec.Parallelism)
	if err != nil {
		return nil, err
	}
	var can []string
	most, widest := 0, ""
	for i := range l.Stages {
		if st := &plan.Stages[i]; !st.Sink {
			if st.Partitions > 0 { // only if it is named
				if !policy && st.Partitions > 1 {
					can = append(can, st.Name)
				}
				continue
			}
			can = append(can, st.Name)
			if l.Stages[i].Groups > most {
				most, widest = l.Stages[i].Groups, st.Name
			}
		}
	}
	return func(stage *string, n int) error {
		*stage = cmp.Or(*stage, widest)
		subject := rescale.Subject{Protocol: protocol.Name(), Log: protocol.Capabilities().KeepsChanges, Coordinated: protocol.Capabilities().Coordinator, Stage: *stage, Groups: n}
		if err := rescale.Refuse(subject, n); err != nil {
			return err // whatever the stage is
		}
		if *stage == "" {
			return fmt.Errorf("%s has no stage between its source and its sink that could be rescaled (with the events in a stream of the log, --source log, it has)", s.JobName())
		}
		found := false
		for k := range l.Stages {
			if st := &plan.Stages[k]; st.Name == *stage {
				found = true
				if policy && st.Partitions > 0 {
					return rescale.OnlyOnRequest(*stage)
				}
				subject.Sink, subject.Source, subject.Groups, subject.Tasks, subject.Most = st.Sink, len(st.Inputs) == 0, l.Stages[k].Groups, l.Stages[k].Tasks, l.Most(k)
			}
		}
		if !found {
			return fmt.Errorf("%s has no stage %q; those that can be rescaled are: %s", s.JobName(), *stage, strings.Join(can, ", "))
		}
		return rescale.Refuse(subject, n)
	}, nil
}

// rescaler carries out the Rescales of a running job, one after the other.
type rescaler struct {
	stop context.CancelFunc
	over chan struct{} // closed when all has the outcome of each
	all  []Rescaled
	err  error
	job  *tasks.Job
}

// rescaler starts one. It calls fail if a rescale fails while the job has input.
func (s *Settings) rescaler(ctx context.Context, job *tasks.Job, fail func()) *rescaler {
	ctx, stop := context.WithCancel(ctx)
	r := &rescaler{stop: stop, over: make(chan struct{}), job: job}
	begin := time.Now()
	go func() {
		defer close(r.over)
		for i := range s.Rescales {
			did, err := s.Rescales[i].do(ctx, job, begin, r.all)
			if err != nil {
				r.err = err
				fail()
				return
			}
			r.all = append(r.all, *did)
			if s.OnRescale != nil {
				s.OnRescale(did)
			}
		}
	}()
	return r
}

// end returns the outcomes. Rescales that are not due, or not done, are not done any more.
func (r *rescaler) end() ([]Rescaled, error) {
	r.stop()
	<-r.over
	came(r.all, r.job.Status())
	return r.all, r.err
}

// do waits for the moment, and for the state of the rescale before, the last of all, and rescales.
func (r *Rescale) do(ctx context.Context, job *tasks.Job, begin time.Time, all []Rescaled) (*Rescaled, error) {
	out := &Rescaled{At: r.When(), Rescaled: tasks.Rescaled{Stage: r.Stage, To: r.Tasks}}
	if !r.due(ctx, job, begin) {
		out.NotDone = "the run had ended"
		return out, nil
	}
	arrived(ctx, job, all)
	out.asked, out.before = time.Now(), job.Status()
	did, err := job.Rescale(ctx, tasks.Rescale{Stage: r.Stage, Tasks: r.Tasks, Mode: r.Mode, Batch: r.Batch, Strategy: r.Strategy, Late: r.Late, ID: "--rescale"})
	switch {
	case err == nil:
		out.Rescaled = *did
	case ctx.Err() != nil || inputEnded(job.Status()) || strings.Contains(err.Error(), "has ended"):
		out.NotDone = "the run ended before: " + err.Error()
	default:
		return nil, err
	}
	return out, nil
}

// due waits for the moment. It returns false if the job ends, or is no longer of interest, before.
func (r *Rescale) due(ctx context.Context, job *tasks.Job, begin time.Time) bool {
	first := time.Until(begin.Add(r.After))
	if r.Events > 0 {
		first = 0
	}
	timer := time.NewTimer(max(first, 0))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-job.Done():
			return false
		case <-timer.C:
			if LiveOf(job.Status(), 0).Events >= r.Events {
				return true
			}
			timer.Reset(time.Millisecond)
		}
	}
}

// inputEnded reports whether the sources have ended, so that the stages behind them are about to.
func inputEnded(all []tasks.Status) bool {
	for i := range all {
		if t := &all[i]; t.Stage == "events" && !t.Ended {
			return false
		}
	}
	return true
}
