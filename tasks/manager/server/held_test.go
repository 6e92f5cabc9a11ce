package server_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/tasks"
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
