package tasks_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/rescale"
)

// twoDomains is a job with two tables: stage by-key, and stage short, whose source may end before.
func twoDomains(t *testing.T, long, short operators.Source[int64]) *operators.Plan {
	job := operators.NewJob("domains")
	for i, src := range []operators.Source[int64]{long, short} {
		name := []string{"by-key", "short"}[i]
		keys := operators.FromSource(job, "source of "+name, src, serde.Int64)
		byKey := operators.KeyBy(keys, name, serde.Int64, func(k *int64) int64 { return *k })
		counted := operators.Process(byKey, "count of "+name, func(c *operators.Context[int64, int64]) operators.Handler[int64] {
			seen := operators.NewMap(c, "seen", serde.Int64, serde.Int64)
			return operators.Handler[int64]{Item: func(*int64) { *seen.Upsert(0)++ }}
		}).With(serde.Int64)
		operators.ToSink(counted, "out of "+name, operators.FuncSink(func(*operators.Batch[operators.KV[int64, int64]]) error { return nil }))
	}
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan
}

func half(group, slot int) []route.Place {
	return []route.Place{{Part: route.Part{Group: group, N: 8}, Slot: slot}}
}

// A request for a table that was chosen for owners and places is carried out if these are the same, although the table of another stage
// was replaced since: all tables have its number. Otherwise two stages that are balanced would keep each other from a step.
func TestTablesOfOtherStages(t *testing.T) {
	w := newWorld(1, 20_000, 2)
	open := new(atomic.Bool)
	g := gate{optest.Items(delay, w.parts...), open, 2000}
	f := fleetOf(t, twoDomains(t, g, g), tasks.Options{Slots: 4}, nil)
	f.follow(0)
	var last *rescale.Progress
	tell := func(p *rescale.Progress) { last = p }
	p := f.newest()
	ask := map[string]tasks.Reroute{}
	for i := range p.Stages {
		have := p.Stages[i].Owners
		ask[p.Stages[i].Name] = tasks.Reroute{Stage: p.Stages[i].Name, Number: uint64(i), Places: half(0, 8), Owners: have, Have: have, Was: []route.Place{}}
	}
	require.NoError(t, f.reroute(t.Context(), f.log, nil, []tasks.Reroute{ask["by-key"], ask["short"]}, tell))
	require.Len(t, last.Rerouted, 2)
	require.Empty(t, last.Rerouted[0].Error)
	require.Empty(t, last.Rerouted[1].Error)
	require.EqualValues(t, 2, last.Epoch)
	again := ask["short"]
	again.Number, again.Places = 20, half(1, 9)
	require.NoError(t, f.reroute(t.Context(), f.log, nil, []tasks.Reroute{again}, tell))
	require.Equal(t, rescale.ErrChanged.Error(), last.Rerouted[0].Error, "its own table is another one")
	open.Store(true)
	f.end()
}

// That a stage has ended is the outcome of its rescale, and of no request for the table of another stage.
func TestAnotherStageHasEnded(t *testing.T) {
	w := newWorld(1, 20_000, 2)
	open := new(atomic.Bool)
	g := gate{optest.Items(delay, w.parts...), open, 2000}
	f := fleetOf(t, twoDomains(t, g, optest.Items(delay, w.parts...)), tasks.Options{Slots: 4}, nil)
	f.follow(0)
	stages := f.newest().Stages
	short := slices.IndexFunc(stages, func(s envelope.PlanStage) bool { return s.Name == "short" })
	require.Eventually(t, func() bool { return !f.runs(short) }, time.Minute, time.Millisecond)
	long := slices.IndexFunc(stages, func(s envelope.PlanStage) bool { return s.Name == "by-key" })
	owners := func(s int) []int {
		o := slices.Clone(stages[s].Owners)
		slices.Reverse(o)
		require.NotEqual(t, o, stages[s].Owners)
		return o
	}
	var last *rescale.Progress
	require.NoError(t, f.reroute(t.Context(), f.log, []rescale.Request{{Stage: "short", Tasks: 2, Owners: owners(short)}},
		[]tasks.Reroute{{Stage: "by-key", Number: 3, Places: half(0, 8), Owners: owners(long)}}, func(p *rescale.Progress) { last = p }))
	require.Len(t, last.Done, 1)
	require.Equal(t, rescale.ErrStageEnded.Error(), last.Done[0].Error)
	require.Len(t, last.Rerouted, 1)
	require.Empty(t, last.Rerouted[0].Error)
	require.Equal(t, owners(long), f.newest().Stages[long].Owners)
	open.Store(true)
	f.end()
}
