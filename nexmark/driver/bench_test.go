package driver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/sharedlog/mem"
)

func TestLatencyCountsEveryRow(t *testing.T) {
	now := time.Now().UnixMilli()
	l := newLatency()
	l.add([]int64{now - 20_000, now - 20_000, now - 20_000, now - 5_000, now - 20_000, now + 10_000})
	l.add(nil)
	require.EqualValues(t, 6, l.h.TotalCount())
	require.InDelta(t, 20_000_000, l.h.ValueAtQuantile(50), 1_000_000)
	require.InDelta(t, 5_000_000, l.h.ValueAtQuantile(30), 1_000_000)
	require.EqualValues(t, 1, l.h.Min(), "a row that is seen before its time")
}

// A source that loses its memory resumes from its last commit, and the count of consumed events
// resumes there too.
func TestBenchCountsOverAFailure(t *testing.T) {
	log := mem.New(mem.Options{})
	r, err := Bench(t.Context(), log, BenchSettings{
		Settings: Settings{
			Query: 1, Partitions: 1, Parallelism: 1, Groups: 4, Protocol: "fused", Eager: true, CommitInterval: 5 * time.Millisecond,
			Generator: generator.Config{Rate: 1000},
		},
		Warmup: 600 * time.Millisecond, Duration: 600 * time.Millisecond, FailAt: 300 * time.Millisecond, FailStage: "events",
	}, nil)
	require.NoError(t, err)
	require.Equal(t, "events", r.Recovery.Stage)
	require.InDelta(t, 1000, r.Achieved, 300)
	require.NoError(t, log.Close())
}
