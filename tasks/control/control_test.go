package control

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/records"
)

// A process appends plans until another one has claimed the job, which knows the newest plan.
func TestOneAppendsPlans(t *testing.T) {
	log := mem.New(mem.Options{})
	l, err := layout.New(&exec.Plan{
		Streams: []exec.StreamSpec{{Name: "in"}, {Name: "out"}},
		Stages:  []exec.StageSpec{{Name: "source", Partitions: 1, Outputs: []int{0}}, {Name: "count", Inputs: []int{0}, Outputs: []int{1}}, {Name: "sink", Inputs: []int{1}, Sink: true}},
	}, "j", 4, 2)
	require.NoError(t, err)
	_, err = Claim(t.Context(), log, "j", 1)
	require.ErrorIs(t, err, ErrDeleted, "there is none")
	first, err := Create(t.Context(), log, "j", 1)
	require.NoError(t, err)
	require.Nil(t, first.Plan)
	require.NoError(t, first.Append(t.Context(), &envelope.Plan{Job: "j"}, l, []int{0, 1}))

	second, err := Claim(t.Context(), log, "j", 2)
	require.NoError(t, err)
	require.Equal(t, "j", second.Plan.Job)
	require.Equal(t, first.At, second.At)
	wider, err := l.With(1, 3, []int{0, 1, 2, 2})
	require.NoError(t, err)
	require.NoError(t, second.Append(t.Context(), &envelope.Plan{Job: "j", Number: 2, Epoch: 3}, wider, []int{1}))
	err = first.Append(t.Context(), &envelope.Plan{Job: "j", Number: 2}, l, nil)
	require.Equal(t, sharedlog.KindConditionFailed, sharedlog.KindOf(err), "%v", err)

	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	plans, at, err := records.Plans(t.Context(), log, "j", tail)
	require.NoError(t, err)
	require.Len(t, plans, 2)
	require.Equal(t, []sharedlog.LSN{first.At, second.At}, at)
	// The plan and the producers of the streams that change are in one group.
	e, ok, err := log.Last(t.Context(), l.Streams[1].All, tail)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, second.At+1, e.LSN)
	var p envelope.Producers
	require.NoError(t, p.Parse(e.Data))
	require.Equal(t, envelope.Producers{Stream: 1, Stage: 1, Tasks: 3, Plan: 2, Epoch: 3}, p)
}
