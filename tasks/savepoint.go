package tasks

import (
	"context"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// savepoint returns the description of the job that goes into a savepoint.
func (s *Spec) savepoint(l *layout.Layout, p progress.Protocol) savepoint.Job {
	j := savepoint.Job{
		Name: s.Name, ID: l.Job, Plan: planHash(s.Plan), Settings: s.Settings,
		Committed: func() checkpoint.ChangeLog { return p.NewChangeLog() },
	}
	domains := l.Plan.Domains()
	for i, st := range l.Stages {
		spec := &l.Plan.Stages[i]
		stage := savepoint.JobStage{Name: spec.Name, Source: spec.Partitions > 0, Sink: spec.Sink, Tasks: st.Tasks, Changes: st.Changes, Owner: st.Owner, Slots: st.Slots}
		for _, in := range spec.Inputs {
			stage.Inputs, stage.Domain = append(stage.Inputs, l.Plan.Streams[in].Name), domains[in]
		}
		for _, t := range spec.Tables {
			stage.Tables = append(stage.Tables, savepoint.Table{Name: t.Name, Type: t.Type, Operator: t.Operator, Kind: t.Kind})
		}
		j.Stages = append(j.Stages, stage)
	}
	return j
}

// CheckFrom returns an error that says why the job cannot start from the savepoint that it names,
// if it names one. A job that is in the log was checked when it was created, and may no longer need
// the savepoint.
func (s *Spec) CheckFrom(ctx context.Context, log sharedlog.Log, store checkpoint.Store) error {
	if s.From == "" {
		return nil
	}
	if err := s.Savable(); err != nil {
		return fmt.Errorf("job %q: savepoint %q: %w", s.Name, s.From, err)
	}
	if err := s.stored(store); err != nil {
		return err
	}
	if begun, _, err := readJob(ctx, log, s.Name); begun != nil || err != nil {
		return err
	}
	_, err := s.tablesFrom(ctx, store)
	return err
}

// stored returns why there is no savepoint to begin from, if there is no store.
func (s *Spec) stored(store checkpoint.Store) error {
	if store == nil {
		return fmt.Errorf("job %q: savepoint %q is in a checkpoint store, and there is none (--checkpoints)", s.Name, s.From)
	}
	return nil
}

// tablesFrom returns the routing tables that the job begins with, by stage, if it begins from a savepoint, which must fit; nil: it does
// not.
func (s *Spec) tablesFrom(ctx context.Context, store checkpoint.Store) ([][]byte, error) {
	if s.From == "" {
		return nil, nil
	}
	if err := s.stored(store); err != nil {
		return nil, err
	}
	m, err := savepoint.Find(ctx, store, s.From)
	if err == nil {
		err = checkSaved(m)
	}
	var tables [][]byte
	if err == nil {
		tables, err = s.fits(m)
	}
	if err != nil {
		return nil, fmt.Errorf("job %q: %w", s.Name, err)
	}
	return tables, nil
}

func (s *Spec) fits(m *savepoint.Manifest) ([][]byte, error) {
	l, err := s.layout(s.Plan, s.Name)
	if err != nil {
		return nil, err
	}
	p, err := progress.ByName(s.Protocol)
	if err != nil {
		return nil, err
	}
	j := s.savepoint(l, p)
	tables, err := m.Routes(&j, s.DropState)
	if err != nil {
		return nil, err
	}
	return tables, same(s.Name, m.Settings, s.Settings)
}

// Savepoint starts a savepoint of a running job with this id in the log; number is the number that
// its tasks stop for (savepoint.New). While it is made, no key group may move, and no routing table may change.
func (s *Spec) Savepoint(ctx context.Context, log sharedlog.Log, store checkpoint.Store, id, name string, number uint64) (*savepoint.Maker, *savepoint.Manifest, error) {
	l, err := s.layout(s.Plan, id)
	if err != nil {
		return nil, nil, err
	}
	tail, err := log.Tail(ctx)
	if err != nil {
		return nil, nil, err
	}
	plan, _, err := records.LastPlan(ctx, log, id, tail)
	if err == nil && plan != nil { // the owners of key groups that have moved
		l, err = owners(l, plan, planHash(s.Plan))
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := progress.ByName(s.Protocol)
	if err != nil {
		return nil, nil, err
	}
	j := s.savepoint(l, p)
	if plan != nil {
		j.Planned = plan.Number
	}
	for i := range j.Stages {
		st := &j.Stages[i]
		if st.Slots == 0 || plan == nil {
			continue
		}
		table, err := routing.TableOf(l, i, plan)
		if err == nil {
			st.Routes, st.Epoch, err = routing.Saved(table)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return savepoint.New(ctx, log, store, j, name, number)
}

// Savable returns an error that says why a job can neither have a savepoint nor start from one.
func (s *Spec) Savable() error {
	p, err := progress.ByName(s.Protocol)
	if err == nil && !p.Capabilities().KeepsChanges {
		err = fmt.Errorf("protocol %s logs no state changes, of which a savepoint would be made", p.Name())
	}
	return err
}
