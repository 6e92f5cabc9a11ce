package server_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
)

// still is what a drive knows of tasks that neither enter nor leave.
type still struct{}

func (still) Enter(int, int, []int) (bool, error) { return false, nil }
func (still) Restart() error                      { return nil }
func (still) Retire(int, int)                     {}
func (still) Runs(int, int) bool                  { return false }
func (still) Changed() <-chan struct{}            { return nil }
func (still) Done() <-chan struct{}               { return nil }

// A drive is to end while its plan is on its way to the log. The plan is there then, so the drive tells of it: the core would withdraw a
// newcomer that the plan names, and no savepoint would be completed without it.
func TestPlanOfAHeldDriveIsTold(t *testing.T) {
	items, _ := turning(4000)
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), gate{optest.Items(4000, items), new(atomic.Bool), 2000}, "fused")
	a.manages("only", a.log)
	a.submit()
	newPair(a)
	h := newHolding(a)
	h.armed.Store(true)
	rescaler, err := a.spec.Rescaler(t.Context(), h, a.id, tasks.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var told rescale.Progress
	done := make(chan error, 1)
	go func() {
		done <- rescaler.Drive(ctx, t.Context(), still{}, []rescale.Request{{Stage: "by-key", Tasks: 1}}, nil, func(p *rescale.Progress) { told = *p })
	}()
	<-h.waits
	cancel()
	h.goes()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Equal(t, 1, a.plans()[1].Stages[1].Tasks)
	require.Equal(t, []int{1, 1, 1}, told.Tasks)
	require.Equal(t, []int{1, 2, 1}, told.Members)
}

// A manager that led before has appended a plan that the leading one does not know. It knows it when it begins a savepoint, for which
// all tasks are to stop that the plan names.
func TestSavepointKnowsThePlan(t *testing.T) {
	items, _ := turning(4000)
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), gate{optest.Items(4000, items), new(atomic.Bool), 2000}, "fused")
	a.saves = storetest.NewMem()
	a.manages("only", a.log)
	a.submit()
	newPair(a)
	former, err := a.spec.Rescaler(t.Context(), a.log, a.id, tasks.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, former.Drive(t.Context(), t.Context(), still{}, []rescale.Request{{Stage: "by-key", Tasks: 1}}, nil, func(*rescale.Progress) {}))
	v, err := a.store.Look(t.Context())
	require.NoError(t, err)
	require.Empty(t, v.States["job"].Tasks)
	require.NoError(t, a.store.Change(t.Context(), "job", func(j *meta.Job) error {
		j.Savepoint = &meta.Savepoint{Name: "one", Number: 5}
		return nil
	}))
	eventually(t, func() bool {
		v, err := a.store.Look(t.Context())
		return err == nil && slices.Equal(v.States["job"].Tasks, []int{1, 1, 1})
	})
}

// A manager knows that it leads, and stands still before it claims the job's plans. It is deposed meanwhile: it appends none, because its
// successor may have answered the request already.
func TestDeposedBeforeItsClaim(t *testing.T) {
	items, _ := turning(4000)
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), gate{optest.Items(4000, items), new(atomic.Bool), 2000}, "fused")
	h := newHolding(a)
	h.claims.Store(true)
	s := a.manages("only", h)
	t.Cleanup(h.goes)
	a.submit()
	newPair(a)
	h.armed.Store(true)
	_, err := jobs.Rescale(t.Context(), a.store, "job", tasks.Rescale{Stage: "by-key", Tasks: 1})
	require.NoError(t, err)
	<-h.waits
	a.usurp()
	other, err := a.store.Campaign(t.Context(), meta.Manager{Name: "other"})
	require.NoError(t, err)
	defer other.Resign()
	h.goes()
	eventually(t, func() bool { return a.warned(meta.ErrDeposed.Error()) || len(a.plans()) > 1 })
	require.NoError(t, s.Close())
	require.Len(t, a.plans(), 1)
}
