package routing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/status"
)

// a job of two domains: streams 0 and 1 meet in stage 1, stream 2 is read by stage 2.
func twoDomains(t *testing.T) *layout.Layout {
	hashed := func(name string) exec.StreamSpec { return exec.StreamSpec{Name: name, Hashed: true} }
	plan := &exec.Plan{
		Streams: []exec.StreamSpec{hashed("a"), hashed("b"), hashed("c"), {Name: "rows", Groups: 1}},
		Stages: []exec.StageSpec{
			{Name: "source", Partitions: 1, Outputs: []int{0, 1}},
			{Name: "join", Inputs: []int{0, 1}, Outputs: []int{2}},
			{Name: "count", Inputs: []int{2}, Outputs: []int{3}},
			{Name: "sink", Inputs: []int{3}, Sink: true},
		},
	}
	l, err := layout.New(plan.WithSlots(2), "j", 4, 1)
	require.NoError(t, err)
	return l
}

func firstPlan(l *layout.Layout) *envelope.Plan {
	p := &envelope.Plan{Job: "j", Number: 1}
	for i := range l.Stages {
		p.Stages = append(p.Stages, envelope.PlanStage{Name: l.Plan.Stages[i].Name, Tasks: 1, Owners: l.Stages[i].Owner})
	}
	return p
}

// All tables of a job are of one epoch, and a plan says what the newest one has changed until all have adopted it.
func TestReplaced(t *testing.T) {
	l := twoDomains(t)
	all := Domains(l)
	require.Equal(t, []Domain{{0, []int{0, 1}, []int{1}, 4, 2}, {2, []int{2}, []int{2}, 4, 2}}, all)
	first := firstPlan(l)
	require.True(t, Settled(first))
	place := route.Place{Part: route.Part{Group: 1, N: 4}, Slot: 4}
	table, err := route.NewTable(1, 4, 2, []route.Place{place})
	require.NoError(t, err)
	second := *first
	second.Number, second.Epoch = 2, 1
	second.Routes, err = Replaced(first, all, &all[0], table)
	require.NoError(t, err)
	require.False(t, Settled(&second))

	of, err := all[0].Of(&second)
	require.NoError(t, err)
	require.Equal(t, []route.Change{{Part: place.Part, From: 1, To: 4}}, of.Changes)
	require.Equal(t, [][]int{l.Stages[1].Owner}, of.Owners)
	of, err = all[1].Of(&second)
	require.NoError(t, err)
	require.Empty(t, of.Changes)
	require.EqualValues(t, 1, of.Table.Epoch)

	// Below it, the plan before was in force.
	before := Before(&second)
	require.Zero(t, before.Epoch)
	of, err = all[0].Of(before)
	require.NoError(t, err)
	require.Empty(t, of.Table.Places())
	require.Empty(t, of.Changes)

	third := second
	third.Number, third.Routes = 3, Next(&second)
	require.True(t, Settled(&third))
	require.False(t, Settled(&second))
	of, err = all[0].Of(&third)
	require.NoError(t, err)
	require.Empty(t, of.Changes)
	require.Equal(t, []route.Place{place}, of.Table.Places())
	require.EqualValues(t, 1, Before(&third).Epoch, "it has changed nothing")

	third.Epoch = 2
	_, err = all[0].Of(&third)
	require.ErrorContains(t, err, "it is of epoch 1, for 4 hash groups and 2 slots; the plan's are 2, 4 and 2")
}

// A task sends by the table that it has said: a new one begins with a commit, when no output is pending.
func TestTakes(t *testing.T) {
	l := twoDomains(t)
	all := Domains(l)
	first := firstPlan(l)
	outputs := []*exec.Output{exec.NewOutput(6), exec.NewOutput(6)}
	task, err := New(l, 0, outputs, nil, shown(l, 0), func(observe.Step) {})
	require.NoError(t, err)
	require.NoError(t, task.Begin(first, first, 0))
	require.Zero(t, task.out[0].by.table.Epoch)
	require.Same(t, task.out[0].by, outputs[0].Router())
	require.False(t, task.Due())
	none, err := New(l, 3, nil, nil, nil, nil)
	require.NoError(t, err)
	require.Nil(t, none, "the sink")

	key := []byte("key")
	table, err := route.NewTable(1, 4, 2, []route.Place{{Part: route.Single(key), Slot: 5}})
	require.NoError(t, err)
	second := *first
	second.Number, second.Epoch = 2, 1
	second.Routes, err = Replaced(first, all, &all[0], table)
	require.NoError(t, err)
	require.NoError(t, task.Learn(&second))
	require.NoError(t, task.Learn(first))
	require.True(t, task.Due())
	section := outputs[0].Section(0)
	section.Data = append(section.Data, "item"...)
	outputs[0].Add(section, len("item"))
	require.NoError(t, task.Take(nil, 0))
	var m envelope.Marker
	task.Mark(&m)
	require.Zero(t, m.Epoch, "an item is pending")
	outputs[0].Reset()
	require.NoError(t, task.Take(nil, 0))
	task.Mark(&m)
	require.EqualValues(t, 1, m.Epoch)
	require.False(t, task.Due())
	for _, o := range outputs {
		require.Equal(t, 5, o.Router().Group(exec.HashKey(key), key))
	}
}

// What was sampled by a table is forgotten when the task sends by another one.
func TestSamplesOfOneTable(t *testing.T) {
	l := twoDomains(t)
	all, first := Domains(l), firstPlan(l)
	outputs := []*exec.Output{exec.NewOutput(6), exec.NewOutput(6)}
	task, err := New(l, 0, outputs, nil, shown(l, 0), func(observe.Step) {})
	require.NoError(t, err)
	require.NoError(t, task.Begin(first, first, 0))
	send := func() int {
		for i := range 10_000 {
			outputs[0].Router().Group(uint64(i)<<50, []byte("k"))
		}
		return len(task.out[0].by.to.Read().Keys)
	}
	require.NotZero(t, send())
	table, err := route.NewTable(1, 4, 2, []route.Place{{Part: route.Part{Group: 1, N: 4}, Slot: 4}})
	require.NoError(t, err)
	second := *first
	second.Number, second.Epoch = 2, 1
	second.Routes, err = Replaced(first, all, &all[0], table)
	require.NoError(t, err)
	require.NoError(t, task.Learn(&second))
	require.NoError(t, task.Take(nil, 0))
	require.Empty(t, task.out[0].by.to.Read().Keys)
	require.NotZero(t, send())
}

// shown returns the status of a task of a stage.
func shown(l *layout.Layout, stage int) *status.Status {
	s := status.New(time.Now, l.Stages[stage].Groups)
	for _, i := range l.Plan.Stages[stage].Outputs {
		s.Output(l.Plan.Streams[i].Name, l.Streams[i].Groups)
	}
	return s
}
