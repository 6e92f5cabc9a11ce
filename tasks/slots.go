package tasks

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/runtime"
)

// slotsSetting is the name of the number of slots among a job's settings; a job without slots does not have it.
const slotsSetting = "slots"

// checkSlots returns why the job cannot have slots, and what to do instead.
func (s *Spec) checkSlots(can progress.Capabilities) error {
	switch {
	case !can.Rescales:
		return fmt.Errorf("slots: %d, but what is in a slot moves as key groups do, which they cannot under protocol %s: use fused or marker, or no slots", s.Slots, s.Protocol)
	case !slices.ContainsFunc(s.Plan.Streams, func(st exec.StreamSpec) bool { return st.Slots > 0 }):
		return fmt.Errorf("slots: %d, but no stream of the job can have some: its items go by the hash of a key nowhere, or to a number of key groups that is fixed: use no slots", s.Slots)
	}
	return nil
}

// checkStages returns why a stage of the job, whose program makes this plan, cannot have slots, before anything is written for
// the job: what a stage keeps is known once a task of it is made. It starts none.
func (s *Spec) checkStages(log sharedlog.Log, plan *exec.Plan, o Options) error {
	cfg, err := s.config(log, plan, s.Name, o)
	if err != nil {
		return err
	}
	executor := runtime.NewExecutor(cfg)
	for stage := range cfg.Layout.Stages {
		t, err := executor.Prepare(stage, 0, runtime.Attempt{}, false)
		if err != nil {
			return err
		}
		if err := t.Discard(); err != nil {
			return err
		}
	}
	return nil
}

// Table returns the newest routing table of what a stage of the job that has this id in the log reads; nil: it has no slots.
func (s *Spec) Table(ctx context.Context, log sharedlog.Log, id string, stage int) (*routing.Table, error) {
	l, err := s.layout(s.Plan, id)
	if err != nil {
		return nil, err
	}
	newest, err := newest(ctx, log, id)
	if err != nil {
		return nil, err
	}
	return routing.TableOf(l, stage, newest)
}

// Routed is the layout of a job with its routing tables, all as of one plan.
type Routed struct {
	*layout.Layout
	// Tables are the newest routing tables of what the stages read, by stage; nil: it has no slots.
	Tables []*routing.Table
}

// Routed returns the layout and the routing tables of the job that has this id in the log, as of its newest plan there.
func (s *Spec) Routed(ctx context.Context, log sharedlog.Log, id string) (*Routed, error) {
	cfg, err := s.joined(ctx, log, s.Plan, id, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	r := &Routed{Layout: cfg.Layout}
	for stage := range cfg.Layout.Stages {
		table, err := routing.TableOf(cfg.Layout, stage, cfg.Plan)
		if err != nil {
			return nil, err
		}
		r.Tables = append(r.Tables, table)
	}
	return r, nil
}

// CheckReroute returns why a request for a routing table cannot be carried out, as far as the job's settings say.
func (s *Spec) CheckReroute(r Reroute) error {
	if err := s.CheckRescale(Rescale{Stage: r.Stage, Cancel: true}); err != nil {
		return err
	}
	l, err := s.layout(s.Plan, s.Name)
	if err != nil {
		return err
	}
	for i := range l.Stages {
		if l.Plan.Stages[i].Name == r.Stage && l.Stages[i].Slots == 0 {
			return fmt.Errorf("stage %s reads no stream with slots: submit the job with some (--slots), in streams that go by the hash of a key", r.Stage)
		}
	}
	return nil
}
