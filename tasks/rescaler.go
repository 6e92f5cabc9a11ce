package tasks

import (
	"context"
	"fmt"
	"log/slog"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/runtime"
)

// fixed is the format of jobs whose key groups never move (docs/adr/0059).
const fixed = "1"

// Rescaler moves key groups, and switches the grains, of a job whose tasks run in other processes (runtime.Handover).
type Rescaler interface {
	Drive(ctx, life context.Context, j rescale.Tasks, asked []rescale.Request, tables []routing.Reroute, tell func(*rescale.Progress)) error
	FinishStep(ctx context.Context, tell func(*rescale.Progress)) error
	Switch(ctx, life context.Context, s SwitchGrain) error
}

// Rescaler returns what moves the key groups of the job that has this id in the log; nil if its
// protocol, or its format, cannot.
func (s *Spec) Rescaler(ctx context.Context, log sharedlog.Log, id string, o Options) (Rescaler, error) {
	if s.Format == fixed {
		return nil, nil
	}
	cfg, err := s.joined(ctx, log, s.Plan, id, o)
	if err != nil || cfg.Handover == nil {
		return nil, err
	}
	return cfg.Handover, nil
}

// GrainOf returns the grain of a stage of the job that has this id in the log, as of its newest plan there; its zero value is the clock
// of the task.
func GrainOf(ctx context.Context, log sharedlog.Log, id string, stage int) (g Grain, err error) {
	p, err := newest(ctx, log, id)
	if err == nil && p.Stages[stage].Grain != nil {
		g = *p.Stages[stage].Grain
	}
	return g, err
}

// newest returns the newest plan of the job that has this id in the log.
func newest(ctx context.Context, log sharedlog.Log, id string) (*envelope.Plan, error) {
	tail, err := log.Tail(ctx)
	if err != nil {
		return nil, err
	}
	p, _, err := records.LastPlan(ctx, log, id, tail)
	if err == nil && p == nil {
		err = fmt.Errorf("job %q is not in the log", id)
	}
	return p, err
}

// Present returns the layout of the job that has this id in the log, as of its newest plan there.
func (s *Spec) Present(ctx context.Context, log sharedlog.Log, id string) (*layout.Layout, error) {
	cfg, err := s.joined(ctx, log, s.Plan, id, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return cfg.Layout, nil
}

// CheckRescale returns why a request to move key groups of the job cannot be carried out, and what to
// do instead.
func (s *Spec) CheckRescale(r Rescale) error {
	older := fmt.Errorf("the job was described by an older program, of format %s, and its tasks may run on older workers; stop it, replace those, and submit it again", s.Format)
	if s.Format == fixed {
		return older
	}
	l, err := s.layout(s.Plan, s.Name)
	if err != nil {
		return err
	}
	p, err := progress.ByName(s.Protocol)
	if err != nil {
		return err
	}
	if err := checkRescale(&runtime.Config{Layout: l, Protocol: p}, r); err != nil {
		return err
	}
	if s.Partitions(r.Stage) > 1 && !RunsFormat(s.Format, partitioned) {
		return fmt.Errorf("stage %s reads a source: %w", r.Stage, older)
	}
	return nil
}

// Partitions returns how many partitions of a source a stage reads, 0: it reads none.
func (s *Spec) Partitions(stage string) int {
	for i := range s.Plan.Stages {
		if st := &s.Plan.Stages[i]; st.Name == stage {
			return st.Partitions
		}
	}
	return 0
}

// NewestPlan returns how many tasks each stage of the job with this id has as of the newest plan in
// the log, and how many with those that leave by it and have not left. goal says that the plan leads to
// another one.
func NewestPlan(ctx context.Context, log sharedlog.Log, id string) (stay, members []int, goal bool, err error) {
	tail, err := log.Tail(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	p, _, err := records.LastPlan(ctx, log, id, tail)
	if err != nil || p == nil {
		return nil, nil, false, err
	}
	for s := range p.Stages {
		st := &p.Stages[s]
		n := p.Members(s)
		for ; n > st.Tasks; n-- {
			m, _, err := records.LastMarker(ctx, log, id, st.Name, n-1, tail)
			if err != nil {
				return nil, nil, false, err
			}
			if m != nil && !m.Ended {
				break
			}
		}
		stay, members = append(stay, st.Tasks), append(members, n)
	}
	return stay, members, len(p.Goal) > 0, nil
}
