package server_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/savepoint"
	"tailrace.dev/tailrace/tasks/tags"
)

// A manager that leads no more, and does not know it, answers a request for a savepoint: the outcome is not in etcd, so the request stays
// there, and the manager that leads then answers it.
func TestDeposedAnswersASavepoint(t *testing.T) {
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), optest.Items(0, []optest.Timed[int64]{}), "fused")
	eventually(t, a.manages("only", a.log).Leads)
	a.submit()
	a.usurp()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := jobs.Savepoint(ctx, a.store, "job", "one", false)
	require.ErrorContains(t, err, "the task manager knows no checkpoint store")
	_, err = jobs.Savepoint(ctx, a.store, "job", "two", false)
	require.ErrorContains(t, err, "the task manager knows no checkpoint store", "the request before has an outcome, whether or not it is in etcd still")
	eventually(t, func() bool {
		v, err := a.store.Look(t.Context())
		return err == nil && v.Jobs["job"].Savepoint == nil
	})
}

// A manager that leads no more, and does not know it, takes neither the plans from the one that leads, nor the copies of a savepoint.
func TestDeposedMakesNoSavepoint(t *testing.T) {
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), optest.Items(0, []optest.Timed[int64]{}), "fused")
	a.saves = storetest.NewMem()
	eventually(t, a.manages("only", a.log).Leads)
	a.submit()
	key, err := a.log.Get(t.Context(), tags.ManagerKey(a.id))
	require.NoError(t, err)
	a.usurp()
	other, err := a.store.Campaign(t.Context(), meta.Manager{Name: "other"})
	require.NoError(t, err)
	defer other.Resign()
	require.NoError(t, a.store.Change(t.Context(), "job", func(j *meta.Job) error {
		j.Savepoint = &meta.Savepoint{Name: "one", Number: 5}
		return nil
	}))
	eventually(t, func() bool { return a.warned("manager no longer leads") })
	now, err := a.log.Get(t.Context(), tags.ManagerKey(a.id))
	require.NoError(t, err)
	require.Equal(t, key.Value, now.Value)
	_, err = a.saves.Load(t.Context(), checkpoint.Group{Job: "savepoint/", Stage: "names"}, func([]checkpoint.Entry) error { return errors.New("there is a savepoint") })
	require.NoError(t, err)
}

// A manager ends when the outcome of a savepoint is in etcd, behind which the job is to stop, and the request is there still: with the next
// manager the job remains stopped, until it is submitted again.
func TestStopsBehindASavepoint(t *testing.T) {
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), optest.Items(0, []optest.Timed[int64]{}), "fused")
	s := a.manages("first", a.log)
	a.submit()
	require.NoError(t, s.Close())
	former, err := a.store.Campaign(t.Context(), meta.Manager{Name: "former"})
	require.NoError(t, err)
	require.NoError(t, a.store.Change(t.Context(), "job", func(j *meta.Job) error {
		j.Savepoint = &meta.Savepoint{Name: "one", Number: 5, Stop: true}
		return nil
	}))
	require.NoError(t, former.Write(t.Context(), []meta.Change{{Job: "job", State: &meta.State{ID: a.id, Phase: meta.Stopped, Saved: &meta.Saved{Name: "one", Number: 5}}}}))
	former.Resign()
	a.manages("second", a.log)
	eventually(t, func() bool {
		v, err := a.store.Look(t.Context())
		j := v.Jobs["job"]
		return err == nil && j.Want == meta.Stop && j.Savepoint == nil && v.States["job"].Phase == meta.Stopped
	})
	require.NotContains(t, a.text(), "job job is submitted", "it does not run in between")
	a.submit()
}

// planning is a store: when a savepoint begins to use it, another process appends a plan.
type planning struct {
	checkpoint.Store
	plan func()
}

func (p *planning) Begin(ctx context.Context, g checkpoint.Group, token sharedlog.LSN) (sharedlog.LSN, error) {
	p.plan()
	return p.Store.Begin(ctx, g, token)
}

// All tasks have stopped for a savepoint when another process, which does not know that it leads no more, appends a plan. Nothing carries out
// the plan while they stand still: the savepoint is refused at once, and they run on.
func TestSavepointAmidPlan(t *testing.T) {
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), optest.Items(0, []optest.Timed[int64]{}), "fused")
	s := a.manages("first", a.log)
	a.submit()
	require.NoError(t, s.Close())
	former, err := a.store.Campaign(t.Context(), meta.Manager{Name: "former"})
	require.NoError(t, err)
	require.NoError(t, a.store.Change(t.Context(), "job", func(j *meta.Job) error {
		j.Savepoint = &meta.Savepoint{Name: "one", Number: 5}
		return nil
	}))
	require.NoError(t, former.Write(t.Context(), []meta.Change{{Job: "job", State: &meta.State{ID: a.id, Phase: meta.Saving}}}))
	former.Resign()
	other, err := a.spec.Rescaler(t.Context(), a.log, a.id, tasks.Options{})
	require.NoError(t, err)
	a.saves = &planning{storetest.NewMem(), sync.OnceFunc(func() {
		assert.NoError(t, other.Switch(t.Context(), t.Context(), tasks.SwitchGrain{Stage: "by-key", Grain: toKey}))
	})}
	a.manages("second", a.log)
	eventually(t, func() bool {
		v, err := a.store.Look(t.Context())
		return err == nil && v.States["job"].Phase == meta.Running && v.States["job"].Saved != nil
	})
	v, err := a.store.Look(t.Context())
	require.NoError(t, err)
	require.Contains(t, v.States["job"].Saved.Error, "the newest plan of the job is 2, not 1: "+savepoint.ErrPlanned.Error())
}

// starting is a store that answers when it has been asked three times.
type starting struct {
	checkpoint.Store
	asked int
}

func (s *starting) Load(ctx context.Context, g checkpoint.Group, f func([]checkpoint.Entry) error) (sharedlog.LSN, error) {
	if s.asked++; s.asked <= 3 {
		return 0, fmt.Errorf("it starts: %w", checkpoint.ErrUnavailable)
	}
	return s.Store.Load(ctx, g, f)
}

// A job is to begin from a savepoint whose store is not available for a while: it is refused for what the store says then.
func TestSavepointOfAStoreThatStarts(t *testing.T) {
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), optest.Items(0, []optest.Timed[int64]{}), "fused")
	a.saves = &starting{Store: storetest.NewMem()}
	a.manages("only", a.log)
	a.spec.From = "one"
	_, err := jobs.Submit(t.Context(), a.store, a.spec)
	require.ErrorIs(t, err, jobs.ErrRefused)
	require.ErrorContains(t, err, savepoint.ErrNone.Error())
	require.True(t, a.warned("cannot register a job in the log; trying again"))
}
