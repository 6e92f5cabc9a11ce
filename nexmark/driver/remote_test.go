package driver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/tasks"
)

// The rate is that of the stages that consume events, and a measurement in which a task
// was begun again is none.
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
	// It ends by itself.
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
}

// Rows that are left out in the warm-up are counted, and in the measured time they end
// the measurement.
func TestRemoteSkips(t *testing.T) {
	r, err := NewRemote(BenchSettings{
		Settings: Settings{Query: 1, Generator: generator.Config{Rate: 1000}}, Warmup: time.Second, Duration: 2 * time.Second,
	})
	require.NoError(t, err)
	require.NoError(t, r.skip())
	r.Begin(nil)
	rep, err := r.Report(nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, rep.Skipped)
	err = r.skip()
	require.ErrorIs(t, err, ErrBehind)
	require.ErrorContains(t, err, "take a lower rate")
}
