package tasks_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
)

// surge returns when the items of a source come, in ms: 100 a second, 200 a second between two times
// in s.
func surge(from, to int64) (due func(k int) int64) {
	begin := time.Now().UnixMilli()
	first, second := int(from*100), int(from*100+(to-from)*200)
	return func(k int) int64 {
		switch {
		case k < first:
			return begin + int64(k)*10
		case k < second:
			return begin + from*1000 + int64(k-first)*5
		}
		return begin + to*1000 + int64(k-second)*10
	}
}

// A rate that doubles for 30 s and falls again: the stage is scaled out, later in, and never
// otherwise; the rows are those of an undisturbed job. An item costs 11 ms of virtual time, so the
// stage has a load of 1.1 tasks, then 2.2.
func TestAutoscale(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		t.Run(protocol, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out")
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				plan, want := working(t, 24_000, surge(40, 70), 11*time.Millisecond, file)
				job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{Parallelism: 2, Groups: 64, Logger: quiet, Protocol: protocol})
				require.NoError(t, err)
				require.NoError(t, job.Autoscale(t.Context(), tasks.Autoscale{Stage: "by-key", Min: 2, Max: 8}))
				state := func() tasks.Autoscaled { return job.Autoscaled()[0] }
				time.Sleep(39 * time.Second)
				require.Zero(t, state().Count, "%+v", state())
				require.Equal(t, 2, state().Tasks)
				time.Sleep(10 * time.Second)
				require.Equal(t, 1, state().Count, "%+v", state())
				require.Greater(t, state().Tasks, 2)
				require.Less(t, state().Rescales[0].At.Sub(begin), 45*time.Second)
				time.Sleep(120 * time.Second)
				s := state()
				require.Equal(t, 2, s.Count, "%+v", s)
				require.Equal(t, 2, s.Tasks)
				require.Equal(t, 2, job.Layout().Stages[1].Tasks)
				require.Greater(t, s.Rescales[1].At.Sub(begin), 130*time.Second)
				require.Empty(t, s.Rescales[0].Error+s.Rescales[1].Error)
				require.NoError(t, job.Wait())
				require.Equal(t, 2, state().Count, "%+v", state())
				sameRows(t, want, lines(t, file))
			})
		})
	}
}

// The bounds of a stage hold in the next process of the job, until they are taken away.
func TestAutoscaleIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	synctest.Test(t, func(t *testing.T) {
		plan, want := working(t, 12_000, surge(0, 1), time.Millisecond, file)
		log := mem.New(mem.Options{})
		o := tasks.Options{Parallelism: 1, Groups: 8, Logger: quiet}
		start := func() *tasks.Job {
			job, err := tasks.Start(t.Context(), log, plan, o)
			require.NoError(t, err)
			return job
		}
		job := start()
		require.NoError(t, job.Autoscale(t.Context(), tasks.Autoscale{Stage: "by-key", Min: 3, Max: 4}))
		job.Stop()
		require.ErrorIs(t, job.Autoscale(context.Background(), tasks.Autoscale{Stage: "by-key", Min: 1, Max: 2}), tasks.ErrEnded)
		job = start()
		time.Sleep(5 * time.Second)
		s := job.Autoscaled()
		require.Len(t, s, 1)
		require.Equal(t, tasks.Autoscale{Stage: "by-key", Min: 3, Max: 4}, s[0].Request)
		require.Equal(t, 3, s[0].Tasks, "at least 3 are wanted: %+v", s)
		require.NoError(t, job.Autoscale(t.Context(), tasks.Autoscale{Stage: "by-key", Min: 5, Max: 5}))
		time.Sleep(5 * time.Second)
		require.Equal(t, 5, job.Layout().Stages[1].Tasks)
		require.NoError(t, job.Autoscale(t.Context(), tasks.Autoscale{Stage: "by-key"}))
		require.Empty(t, job.Autoscaled())
		job.Stop()
		job = start()
		require.Empty(t, job.Autoscaled())
		require.NoError(t, job.Wait())
		sameRows(t, want, lines(t, file))
	})
}

// What cannot be rescaled is not autoscaled, for the same reasons.
func TestAutoscaleRefused(t *testing.T) {
	for _, c := range []struct {
		protocol, stage string
		min, max        int
		want            string
	}{
		{"txn", "by-key", 1, 2, "use fused or marker"},
		{"aligned", "by-key", 1, 2, "it keeps no change log; stop the job"},
		{"fused", "nothing", 1, 2, `no stage "nothing"; it has`},
		{"fused", "keys", 1, 2, "reads a source"},
		{"fused", "out", 1, 2, "is a sink"},
		{"fused", "by-key", 0, 2, "at least 1"},
		{"fused", "by-key", 1, 9, "8 key groups: at most 8"},
		{"fused", "by-key", 3, 2, "the first is at most the second"},
	} {
		t.Run(c.protocol+"/"+c.stage, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out")
			synctest.Test(t, func(t *testing.T) {
				plan, _ := working(t, 1000, surge(1, 2), time.Millisecond, file)
				o := tasks.Options{Parallelism: 2, Groups: 8, Logger: quiet, Protocol: c.protocol}
				job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan, o)
				require.NoError(t, err)
				r := tasks.Autoscale{Stage: c.stage, Min: c.min, Max: c.max}
				require.ErrorContains(t, job.Autoscale(t.Context(), r), c.want)
				require.Empty(t, job.Autoscaled())
				job.Stop()
			})
		})
	}
}
