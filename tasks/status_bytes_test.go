package tasks_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
)

// trickle is a source that has a few items a millisecond, until it is opened.
type trickle struct {
	operators.Source[int64]
	open *atomic.Bool
}

func (s trickle) Open(p int) (operators.Partition[int64], error) {
	part, err := s.Source.Open(p)
	return &tricklePartition{part, s.open, false}, err
}

type tricklePartition struct {
	operators.Partition[int64]
	open   *atomic.Bool
	waited bool
}

func (p *tricklePartition) Read(b *operators.Batch[int64], most int, now int64) (operators.Status, error) {
	if p.open.Load() {
		return p.Partition.Read(b, most, now)
	}
	if p.waited = !p.waited; p.waited {
		return operators.Status{State: operators.Waiting, Due: now + 1}, nil
	}
	return p.Partition.Read(b, min(most, 4), now)
}

// The status of a task has the size of its state, and of the records that wait for their markers.
func TestStatusHasSizes(t *testing.T) {
	w := newWorld(1, 100_000, 1)
	source := trickle{optest.Items(delay, w.parts...), new(atomic.Bool)}
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, filepath.Join(t.TempDir(), "out"), source), tasks.Options{
		Parallelism: 1, Groups: 4, CommitInterval: 20 * time.Millisecond, FlushInterval: time.Millisecond, Logger: quiet, Protocol: "marker",
	})
	require.NoError(t, err)
	state, held := false, false
	require.Eventually(t, func() bool {
		for _, s := range job.Status() {
			state, held = state || s.StateBytes > 0, held || s.HeldBytes > 0
		}
		return state && held
	}, time.Minute, time.Millisecond)
	source.open.Store(true)
	require.NoError(t, job.Wait())
	for _, s := range job.Status() {
		require.Zero(t, s.HeldBytes, "nothing waits at the end")
	}
}
