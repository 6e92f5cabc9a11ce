package tasks_test

import (
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/copies"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/rescale"
)

// A key group whose keys a RouteBy names comes to a task of another process in parts, of which the first one has most entries.
// Records wait for what they need of it.
func TestRoutedGroupsBetweenProcesses(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		t.Run(protocol, func(t *testing.T) {
			w := newWorld(1, 20_000, 2)
			file := filepath.Join(t.TempDir(), "out")
			g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
			var f *fleet
			waited := func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				for k, h := range f.tasks {
					if k[0] == byKey && h.Status().WaitingMS > 0 {
						return true
					}
				}
				return false
			}
			f = fleetOf(t, countsBy(t, file, g, operators.Modulo[int64]()), tasks.Options{Protocol: protocol}, func(l *link) {
				l.receive = func(b []byte) ([]byte, error) {
					g.open.Store(true)
					if of, err := copies.Parse(b); err == nil && of.Kind == copies.Parts && of.Parts[0].Number == exec.Head {
						for !waited() && t.Context().Err() == nil {
							runtime.Gosched()
						}
					}
					return b, nil
				}
			})
			require.Eventually(t, func() bool { return f.keys(byKey) >= 40 }, time.Minute, time.Millisecond, "there is state to move")
			for _, n := range []int{5, 1, 3} {
				require.NoError(t, f.drive(t.Context(), []rescale.Request{{Stage: "by-key", Tasks: n}}, func(*rescale.Progress) {}))
			}
			f.end()
			sameRows(t, w.want, lines(t, file))
			require.NotZero(t, f.moved().Fetched)
			require.Zero(t, f.count(observe.RecoveryReplaying), "all has come")
		})
	}
}

// State is in the key groups that the RouteBy of its job named: a job with another one, or with none, does not take it over, neither as it
// is started again nor from a savepoint.
func TestRouteByIsKept(t *testing.T) {
	w := newWorld(3, 20_000, 2)
	dir := t.TempDir()
	log := mem.New(mem.Options{})
	o := tasks.Options{Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Checkpoints: storetest.NewMem()}
	file := filepath.Join(dir, "out")
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
	job, err := tasks.Start(t.Context(), log, countsBy(t, file, g, operators.Modulo[int64]()), o)
	require.NoError(t, err)
	m, err := job.Savepoint(t.Context(), "one", true)
	require.NoError(t, err)
	require.ErrorIs(t, job.Wait(), tasks.ErrDrained)
	copied := filepath.Join(dir, "copied")
	upTo(t, m, file, copied)

	_, err = tasks.Start(t.Context(), log, w.plan(t, file), o)
	require.ErrorIs(t, err, tasks.ErrSettings)
	o.Name, o.From = "second", "one"
	other := operators.RouteBy("other", func(k *int64, groups int) int { return int(*k) % groups })
	for _, plan := range []*operators.Plan{w.plan(t, copied), countsBy(t, copied, optest.Items(delay, w.parts...), other)} {
		_, err = tasks.Start(t.Context(), log, plan, o)
		require.ErrorContains(t, err, `key groups by RouteBy "modulo"`)
	}
	job, err = tasks.Start(t.Context(), log, countsBy(t, copied, optest.Items(delay, w.parts...), operators.Modulo[int64]()), o)
	require.NoError(t, err)
	require.NoError(t, job.Wait())
	sameRows(t, w.want, lines(t, copied))
}
