package records

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/tags"
)

type log struct {
	*testing.T
	sharedlog.Log
	w *sharedlog.Writer
}

func newLog(t *testing.T) log {
	l := mem.New(mem.Options{})
	owner := sharedlog.Condition{Key: tags.ManagerKey("j"), Value: []byte("1")} // tags of jobs are reserved
	_, err := l.CompareAndSet(t.Context(), owner.Key, nil, owner.Value)
	require.NoError(t, err)
	return log{t, l, sharedlog.NewWriter(l, "w", owner)}
}

func (l log) append(tag sharedlog.Tag, data []byte) sharedlog.LSN {
	at, err := l.w.Append(sharedlog.Record{Tags: []sharedlog.Tag{tag}, Data: data}).Wait(l.Context())
	require.NoError(l, err)
	return at
}

// The newest marker below a place is a task's; one of another task says that the stages changed.
func TestMarkers(t *testing.T) {
	l := newLog(t)
	m, at, err := LastMarker(t.Context(), l, "j", "count", 3, 100)
	require.NoError(t, err)
	require.Nil(t, m)
	require.Zero(t, at)

	tag := tags.Task("j", "count", 3)
	first := l.append(tag, (&envelope.Marker{Stage: 1, Task: 3, Commit: 1}).Append(nil))
	second := l.append(tag, (&envelope.Marker{Stage: 1, Task: 3, Commit: 2}).Append(nil))
	for below, want := range map[sharedlog.LSN]uint64{second + 1: 2, second: 1} {
		m, at, err = MarkerOf(t.Context(), l, "j", "count", 1, 3, below)
		require.NoError(t, err)
		require.Equal(t, want, m.Commit)
		require.Equal(t, below-1, at)
	}
	m, _, err = MarkerOf(t.Context(), l, "j", "count", 2, 3, second+1)
	require.ErrorContains(t, err, "is of task 1/3: the job's stages have changed")
	require.Nil(t, m)

	// A barrier is the marker at the very place that the checkpoint names.
	m, err = Barrier(t.Context(), l, "j", "count", envelope.CheckpointTask{Stage: 1, Task: 3, Barrier: first})
	require.NoError(t, err)
	require.EqualValues(t, 1, m.Commit)
	_, err = Barrier(t.Context(), l, "j", "count", envelope.CheckpointTask{Stage: 1, Task: 3, Barrier: second + 1})
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	require.ErrorContains(t, err, `no barrier of stage "count", task 3`)

	damaged := l.append(tag, []byte{0xff})
	_, _, err = LastMarker(t.Context(), l, "j", "count", 3, damaged+1)
	require.ErrorContains(t, err, "marker at LSN")
}

func TestCheckpointAndPlan(t *testing.T) {
	l := newLog(t)
	c, _, err := LastCheckpoint(t.Context(), l, "j", 100)
	require.NoError(t, err)
	require.Nil(t, c)
	p, _, err := LastPlan(t.Context(), l, "j", 100)
	require.NoError(t, err)
	require.Nil(t, p)

	at := l.append(tags.Checkpoints("j"), (&envelope.Checkpoint{Job: "j", Number: 4, Attempt: 2}).Append(nil))
	c, found, err := LastCheckpoint(t.Context(), l, "j", at+1)
	require.NoError(t, err)
	require.Equal(t, at, found)
	require.EqualValues(t, 4, c.Number)

	at = l.append(tags.Control("j"), (&envelope.Plan{Job: "j", Protocol: "fused"}).Append(nil))
	p, _, err = LastPlan(t.Context(), l, "j", at+1)
	require.NoError(t, err)
	require.Equal(t, "fused", p.Protocol)
	at = l.append(tags.Control("j"), []byte{0xff})
	_, _, err = LastPlan(t.Context(), l, "j", at+1)
	require.ErrorContains(t, err, `the plan of job "j" at LSN`)
}
