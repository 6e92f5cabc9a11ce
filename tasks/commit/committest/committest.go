// Package committest has the job that tests of committers run.
package committest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/slice"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/tags"
)

// Counting returns the configuration of job "j", which counts 100 numbers by their remainder: a stage
// that reads them and one that counts, of 2 tasks each, with 4 key groups. The log is in memory and
// has the producers of the streams; a manager owns the job. The caller sets
// Commits and Clock.
func Counting(t testing.TB, p progress.Protocol) *runtime.Config {
	t.Helper()
	items := make([]int64, 100)
	for i := range items {
		items[i] = int64(i)
	}
	job := operators.NewJob("counting")
	in := operators.FromSource(job, "numbers", slice.Of(items, func(v *int64) int64 { return *v }), serde.Int64)
	counts := operators.Count(operators.KeyBy(in, "keyed", serde.Int64, func(v *int64) int64 { return *v % 7 }))
	operators.ToSink(counts, "out", optest.Collect[operators.Change[int64, int64]](nil))
	plan, err := job.Plan()
	require.NoError(t, err)
	l, err := layout.New(plan, "j", 4, 2)
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	owner := sharedlog.Condition{Key: tags.ManagerKey("j"), Value: []byte("1")}
	_, err = log.CompareAndSet(t.Context(), owner.Key, nil, owner.Value)
	require.NoError(t, err)
	w := sharedlog.NewWriter(log, "w", owner)
	for i, s := range l.Streams {
		r := envelope.Producers{Stream: uint32(i), Stage: uint32(s.Producer), Tasks: l.Stages[s.Producer].Tasks}
		_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{s.All}, Data: r.Append(nil)}).Wait(t.Context())
		require.NoError(t, err)
	}
	return &runtime.Config{
		Log: log, Layout: l, Protocol: p, CommitInterval: time.Millisecond, FlushInterval: time.Millisecond,
		CommitBytes: 1 << 20, HeldMemory: 1 << 20, InFlight: 4, OnError: runtime.OnErrorFail,
		Logger: slog.New(slog.DiscardHandler),
	}
}
