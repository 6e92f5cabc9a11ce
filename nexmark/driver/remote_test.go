package driver

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
)

// The rate is the rate of the stages that consume events, and a measurement in which a task
// restarted fails.
func TestRemote(t *testing.T) {
	s := BenchSettings{
		Settings: Settings{Query: 5, Logged: true, Eager: true, CommitInterval: 10 * time.Millisecond, Generator: generator.Config{Rate: 1000}},
		Warmup:   time.Second, Duration: 2 * time.Second,
	}
	r, err := NewRemote(s)
	require.NoError(t, err)
	spec, err := r.Spec()
	require.NoError(t, err)
	plan, err := Build(spec)
	require.NoError(t, err)
	require.Len(t, plan.Stages, len(spec.Plan.Stages))
	// The events end by themselves.
	require.EqualValues(t, 63_000, r.s.Generator.Events)

	says := func(instance, items uint64) []tasks.Status {
		return []tasks.Status{{Stage: "events", ItemsIn: 9 * items}, {Stage: "input", Instance: 3, ItemsIn: items}, {Stage: "input", Task: 1, Instance: instance, ItemsIn: items}}
	}
	r.Begin(says(4, 1000))
	r.measured = time.Now().Add(-2 * time.Second)
	rep, err := r.Report(says(4, 2000))
	require.NoError(t, err)
	require.InDelta(t, 1000, rep.Achieved, 50)
	require.True(t, rep.Sustained)
	rep, err = r.Report(says(4, 1900))
	require.NoError(t, err)
	require.False(t, rep.Sustained)
	_, err = r.Report(says(5, 2000))
	require.ErrorIs(t, err, ErrRestarted)
	require.ErrorContains(t, err, "input/1")

	// The restarted task reports the committed work of its predecessor and its own: it starts 40
	// items behind and has made up for them.
	again := says(5, 300)
	again[1].ItemsIn, again[2].Before = 2000, 960
	rep = r.ReportRecovery(again, &Recovery{Stage: "input"})
	require.InDelta(t, (1000.+260)/2, rep.Achieved, 50)
	require.False(t, rep.Sustained)
	again[2].ItemsIn = 1040
	rep = r.ReportRecovery(again, &Recovery{Stage: "input"})
	require.InDelta(t, 1000, rep.Achieved, 50)
	require.True(t, rep.Sustained)
	again[1].ItemsIn, again[2].ItemsIn = 1000, 0 // nothing is made up for yet
	rep = r.ReportRecovery(again, &Recovery{Stage: "input"})
	require.Zero(t, rep.Achieved)
	require.False(t, rep.Sustained)
}

// The reader starts when rows have been trimmed already. During the warm-up it counts them and the
// measured time is complete; in the measured time they end the measurement.
func TestRemoteComesLate(t *testing.T) {
	log := mem.New(mem.Options{})
	r, err := NewRemote(BenchSettings{
		Settings: Settings{
			Query: 1, Partitions: 1, Parallelism: 1, Groups: 4, Protocol: "fused", CommitInterval: 5 * time.Millisecond,
			Generator: generator.Config{Rate: 1000},
		},
	})
	require.NoError(t, err)
	j, err := r.s.job()
	require.NoError(t, err)
	o, plan := j.options, j.plan
	o.TrimBytes = -1 // called below, at the right moment
	o.Logger = slog.New(slog.DiscardHandler)
	job, err := tasks.Start(t.Context(), log, plan, o)
	require.NoError(t, err)
	spec, err := r.Spec()
	require.NoError(t, err)
	trimmer, err := spec.Trimmer(log, job.Layout().Job)
	require.NoError(t, err)
	rows := func() int {
		n := 0
		for _, s := range job.Status() {
			if s.Stage == "rows" {
				n += int(s.ItemsIn)
			}
		}
		return n
	}
	trimmed := func() bool {
		_, err := trimmer.Round(t.Context(), 0)
		require.NoError(t, err)
		return errors.Is(tasks.ReadInto(t.Context(), log, r.s.JobName(), plan, "rows", false, nil), sharedlog.ErrTrimmed)
	}
	require.Eventually(t, func() bool { return rows() > 100 && trimmed() }, 3*time.Minute, 5*time.Millisecond)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read := make(chan error, 1)
	go func() { read <- r.Read(ctx, log) }()
	require.Eventually(t, func() bool { return r.skipped.Load() > 0 && r.visible.quantiles().Count > 0 }, 3*time.Minute, 5*time.Millisecond)
	r.Begin(job.Status())
	require.Eventually(t, func() bool { return r.visible.quantiles().Count > 100 }, 3*time.Minute, 5*time.Millisecond)
	rep, err := r.Report(job.Status())
	require.NoError(t, err)
	require.EqualValues(t, 1, rep.Skipped)
	cancel()
	require.NoError(t, <-read)

	// A reader that starts as late, but in the measured time.
	late, end := context.WithTimeout(t.Context(), 3*time.Minute)
	defer end()
	err = r.Read(late, log)
	require.ErrorIs(t, err, ErrBehind)
	require.ErrorContains(t, err, "take a lower rate")
	job.Stop()
	require.NoError(t, log.Close())
}
