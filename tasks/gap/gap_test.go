package gap

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/tags"
)

// The explanation says what the log has of the producer, what another reader sees of it, and where
// each tag begins. Other errors stay as they are.
func TestExplain(t *testing.T) {
	l, err := layout.New(&exec.Plan{
		Streams: []exec.StreamSpec{{Name: "bids"}},
		Stages:  []exec.StageSpec{{Name: "source", Partitions: 2, Outputs: []int{0}}, {Name: "count", Inputs: []int{0}}},
	}, "j", 2, 2)
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	owner := sharedlog.Condition{Key: tags.ManagerKey("j"), Value: []byte("1")}
	_, err = log.CompareAndSet(t.Context(), owner.Key, nil, owner.Value)
	require.NoError(t, err)
	w := sharedlog.NewWriter(log, "w", owner)
	marker := func(commit uint64) {
		m := envelope.Marker{Job: "j", Stage: 0, Task: 1, Instance: 3, Commit: commit}
		_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{l.Streams[0].All, tags.Task("j", "source", 1)}, Data: m.Append(nil)}).Wait(t.Context())
		require.NoError(t, err)
	}
	in := []sharedlog.Tag{l.Streams[0].All, l.Streams[0].Data[1]}
	r := Reading{Log: log, Layout: l, Tags: in, From: 1, Position: 2, Low: 1}
	other := errors.New("another")
	require.Equal(t, other, r.Explain(t.Context(), 3, other))

	missing := &progress.Gap{Stage: 0, Task: 1, Commit: 4, After: 1}
	err = r.Explain(t.Context(), 1, missing)
	require.ErrorContains(t, err, "there is no marker of source/1")
	require.ErrorContains(t, err, "shows 0 of its markers below, the first is none")
	require.ErrorContains(t, err, `tag "X/j/bids/1" shows no record`)

	marker(1)
	marker(2)
	marker(4)
	err = r.Explain(t.Context(), 3, missing)
	require.ErrorIs(t, err, missing)
	require.ErrorContains(t, err, "the task's reader began at LSN 1, its position is 2 (low 1)")
	require.ErrorContains(t, err, "the newest marker of source/1 is 4, at LSN 3, of instance 3")
	require.ErrorContains(t, err, "shows 2 of its markers below, the first is 1 at LSN 1, the newest is 2 at LSN 2")
	require.ErrorContains(t, err, `begins at LSN 1`)

	// The same after a trim: it is told from a loss.
	require.NoError(t, log.Trim(t.Context(), l.Streams[0].All, 3))
	r.From = 3
	err = r.Explain(t.Context(), 4, missing)
	require.ErrorContains(t, err, "shows 1 of its markers below, the first is 4 at LSN 3")
	require.ErrorContains(t, err, `begins at LSN 3`)
}
