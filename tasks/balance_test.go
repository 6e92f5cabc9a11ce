package tasks_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
)

// A planner of the user's has the loads of the key groups, and its owners become those of the stage. One that fails moves nothing.
func TestBalanceByAnOwnPlanner(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().UnixMilli()
		plan, want := working(t, 30_000, func(k int) int64 { return begin + int64(k)/2 }, 10*time.Microsecond, file)
		job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{Parallelism: 2, Groups: 16, Logger: quiet})
		require.NoError(t, err)
		_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 2, Owners: uneven()})
		require.NoError(t, err)
		var loads []tasks.BalanceLoad // written by one goroutine, read when it is durably blocked
		broken := true
		inTurns := func(l *tasks.BalanceLoad) ([]int, error) {
			loads = append(loads, *l)
			if broken {
				return nil, errors.New("not yet")
			}
			owners := make([]int, len(l.Owners))
			for g := range owners {
				owners[g] = g % l.Tasks
			}
			return owners, nil
		}
		b := tasks.Balance{Stage: "by-key", Dispatch: tasks.BalanceOwn, Planner: inTurns, When: tasks.BalanceWhen{Every: 1000}}
		require.NoError(t, job.Balance(b))
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		s := job.Balanced()[0]
		require.Zero(t, s.Switches)
		require.Equal(t, "the planner of stage by-key: not yet", s.Error)
		require.NotEmpty(t, loads)
		newest := loads[len(loads)-1]
		require.Equal(t, uneven(), newest.Owners)
		require.Len(t, newest.Items, 16)
		require.NotContains(t, newest.Items, int64(0))

		broken = false
		time.Sleep(3 * time.Second)
		synctest.Wait()
		s = job.Balanced()[0]
		require.Equal(t, 1, s.Switches, "%+v", s)
		require.Greater(t, s.Degree, 0.7)
		for g, owner := range loads[len(loads)-1].Owners {
			require.Equal(t, g%2, owner)
		}
		require.NoError(t, job.Wait())
		sameRows(t, want, lines(t, file))
	})
}

// Three quarters of the key groups belong to one of two tasks: after three samples they are moved, once.
// Another balancer of the stage takes over, and gives a task three times the other's share.
func TestBalance(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		t.Run(protocol, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out")
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now().UnixMilli()
				plan, want := working(t, 90_000, func(k int) int64 { return begin + int64(k)/2 }, 10*time.Microsecond, file)
				job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{Parallelism: 2, Groups: 16, Logger: quiet, Protocol: protocol})
				require.NoError(t, err)
				_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 2, Owners: uneven()})
				require.NoError(t, err)

				require.NoError(t, job.Balance(tasks.Balance{Stage: "by-key", Dispatch: "least-count", When: tasks.BalanceWhen{Below: 0.9}}))
				state := func() *tasks.Balanced { return &job.Balanced()[0] }
				time.Sleep(3500 * time.Millisecond) // the first sample has no items, two more are of them
				before := state()
				require.Zero(t, before.Switches, "%+v", before)
				require.InDelta(t, 1.0/3, before.Mean, 0.1)
				time.Sleep(20 * time.Second)
				s := state()
				require.Equal(t, 1, s.Switches, "%+v", s)
				require.InDelta(t, 1.0/3, s.Newest.Degree, 0.1)
				require.Greater(t, s.Degree, 0.85)
				require.Equal(t, 2, s.Tasks)
				require.Equal(t, 16, s.KeyGroups)
				require.Equal(t, s.MovedGroups, s.Newest.GroupsMoved)
				require.Less(t, s.MovedGroups, 8)
				require.Empty(t, s.Error)
				since := s.Since(before)
				require.Greater(t, since.Mean, s.Mean, "it was uneven before")
				require.InDelta(t, 40_000, since.ByTask[0]+since.ByTask[1], 4000, "items of 20 s")

				require.NoError(t, job.Balance(tasks.Balance{Stage: "by-key", Dispatch: "weight", When: tasks.BalanceWhen{Below: 0.9}, Shares: []float64{3, 1}}))
				time.Sleep(6 * time.Second)
				before = state()
				require.Equal(t, 1, before.Switches, "%+v", before)
				time.Sleep(5 * time.Second)
				by := state().Since(before).ByTask
				require.InDelta(t, 3, float64(by[0])/float64(by[1]), 0.5, "%v", by)
				require.NoError(t, job.Wait())
				require.ErrorIs(t, job.Balance(tasks.Balance{Stage: "by-key", Dispatch: "auto"}), tasks.ErrEnded)
				sameRows(t, want, lines(t, file))
			})
		})
	}
}

// A rescale of a stage that is balanced distributes the key groups by their loads, unless it says otherwise.
func TestRescaledByLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().UnixMilli()
		plan, want := keptAndBusy(t, 40_000, func(k int) int64 { return begin + int64(k)/2 }, file)
		job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{Parallelism: 2, Groups: 16, Logger: quiet})
		require.NoError(t, err)
		require.NoError(t, job.Balance(tasks.Balance{Stage: "by-key", Dispatch: "least-count", When: tasks.BalanceWhen{Below: 0.1}}))
		<-time.After(4 * time.Second)
		done, err := job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 3, Strategy: "sticky"})
		require.NoError(t, err)
		require.Equal(t, "sticky", done.Strategy)
		<-time.After(6 * time.Second)
		s := job.Balanced()[0]
		require.Less(t, s.Degree, 0.7, "a third of the items are one key's")
		done, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 2})
		require.NoError(t, err)
		require.Equal(t, "load", done.Strategy)
		<-time.After(6 * time.Second)
		s = job.Balanced()[0]
		require.Greater(t, s.Degree, 0.9)
		require.Zero(t, s.Switches, "%+v", s)
		require.NoError(t, job.Wait())
		sameRows(t, want, lines(t, file))
	})
}

// What cannot be rescaled cannot be balanced.
func TestBalanceRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().UnixMilli()
		plan, _ := working(t, 1000, func(k int) int64 { return begin + int64(k) }, 0, filepath.Join(t.TempDir(), "out"))
		job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{Parallelism: 2, Groups: 8, Logger: quiet})
		require.NoError(t, err)
		for want, r := range map[string]tasks.Balance{
			`there is no dispatch "best"`:                {Stage: "by-key", Dispatch: "best"},
			"task weight 0: use numbers above 0":         {Stage: "by-key", Dispatch: "weight", Shares: []float64{1, 0}},
			`balance stage "what": the job has no stage`: {Stage: "what", Dispatch: "auto"},
			`balance stage "keys"`:                       {Stage: "keys", Dispatch: "auto"},
		} {
			require.ErrorContains(t, job.Balance(r), want)
		}
		require.Empty(t, job.Balanced())
		require.NoError(t, job.Wait())
	})
}
