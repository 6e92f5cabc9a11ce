package tasks_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	joblog "tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/rescale"
)

// A plan of another table waits at a task that lacks parts of key groups, which come over a connection (docs/adr/0081, rule R11):
// state that comes behind the table would be that of keys which have left.
func TestTableWaitsForParts(t *testing.T) {
	x := newAll(t)
	release := make(chan struct{})
	f := fleetOf(t, x.plan, tasks.Options{Protocol: "fused", Slots: 4}, func(l *link) {
		l.receive = func(b []byte) ([]byte, error) {
			select {
			case <-release:
			case <-t.Context().Done():
			}
			return b, nil
		}
	})
	require.Eventually(t, func() bool { return x.wall() >= len(x.early) }, time.Minute, time.Millisecond, "the state is that of the items so far")
	// The new task gets a key group of each of the others, and two slots.
	st := &f.executors[0].Load().Layout().Stages[byKey]
	owners, slot := slices.Clone(st.Owner), st.Hashed()
	places := []route.Place{{Slot: slot}, {Slot: slot + 1}}
	for task := range places {
		g := slices.Index(owners, task)
		places[task].Part = route.Part{Group: g, Sub: 0, N: 2}
		owners[g], owners[slot+task] = 2, 2
	}
	require.NoError(t, f.drive(t.Context(), []rescale.Request{{Stage: "by-key", Tasks: 3, Owners: owners}}, func(*rescale.Progress) {}))

	r, err := f.spec.Rescaler(t.Context(), f.log, f.id, tasks.Options{Logger: quiet})
	require.NoError(t, err)
	rerouted := make(chan error, 1)
	go func() {
		rerouted <- r.(interface {
			Reroute(context.Context, rescale.Tasks, tasks.Reroute) error
		}).Reroute(t.Context(), f, tasks.Reroute{Stage: "by-key", Places: places})
	}()
	waits := 0
	require.Eventually(t, func() bool {
		tail, err := f.log.Tail(t.Context())
		require.NoError(t, err)
		p, at, err := joblog.LastPlan(t.Context(), f.log, f.id, tail)
		require.NoError(t, err)
		if p.Epoch == 0 {
			return false
		}
		m, _, err := joblog.LastMarker(t.Context(), f.log, f.id, "by-key", 2, tail)
		require.NoError(t, err)
		f.mu.Lock()
		s := f.tasks[[2]int{byKey, 2}].Status()
		f.mu.Unlock()
		if s.WaitingMS > 0 && sharedlog.LSN(s.Position) <= at {
			waits++
		}
		return waits > 0 || m != nil && m.Adopted >= p.Epoch
	}, time.Minute, time.Millisecond, "the plan is at the new task, which lacks parts")
	close(release)
	require.NoError(t, <-rerouted)
	x.gate.open.Store(true)
	f.end()
	sameRows(t, x.want, lines(t, x.file))
}
