package routing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/control"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
)

// A job that begins from a savepoint has the savepoint's tables from its first plan on, as those of epoch 0, in all domains of its stages;
// what it began with is known until all tasks have started.
func TestStartsWithTables(t *testing.T) {
	l := twoDomains(t)
	all := Domains(l)
	place := route.Place{Part: route.Part{Group: 1, N: 4}, Slot: 4}
	newest, err := route.NewTable(7, 4, 2, []route.Place{place})
	require.NoError(t, err)
	saved, epoch, err := Saved(newest)
	require.NoError(t, err)
	require.EqualValues(t, 7, epoch)
	empty, err := route.NewTable(7, 4, 2, nil)
	require.NoError(t, err)
	for _, table := range []*Table{nil, empty} {
		none, epoch, err := Saved(table)
		require.NoError(t, err)
		require.Nil(t, none)
		require.Equal(t, table != nil, epoch == 7)
	}

	tables := [][]byte{nil, nil, saved, nil}
	first := firstPlan(l)
	first.Routes, err = First(l, tables)
	require.NoError(t, err)
	require.Equal(t, []envelope.Routes{{Stream: 2, Table: saved}}, first.Routes)
	require.True(t, Settled(first))
	for stage, places := range [][]route.Place{nil, {}, {place}, nil} {
		table, err := TableOf(l, stage, first)
		require.NoError(t, err)
		if places == nil {
			require.Nil(t, table)
			continue
		}
		require.Zero(t, table.Epoch)
		require.ElementsMatch(t, places, table.Places())
	}
	wide, err := route.NewTable(0, 4, 3, []route.Place{place})
	require.NoError(t, err)
	for _, b := range [][]byte{saved[:len(saved)-1], wide.Append(nil), newest.Append(nil)} {
		_, err = First(l, [][]byte{nil, nil, b, nil})
		require.ErrorContains(t, err, "routing table of stream 2")
	}

	second := *first
	second.Number, second.Epoch = 2, 1
	table, err := route.NewTable(1, 4, 2, nil)
	require.NoError(t, err)
	second.Routes, err = Replaced(first, all, &all[1], table)
	require.NoError(t, err)
	third := second
	third.Number, third.Routes = 3, Next(&second)
	for _, c := range []struct {
		plan *envelope.Plan
		want [][]byte
	}{{first, tables}, {&second, tables}, {&third, nil}} {
		started, err := Started(l, c.plan)
		require.NoError(t, err)
		require.Equal(t, c.want, started)
	}

	// The first instances send by the table, and have adopted it.
	log := mem.New(mem.Options{})
	plans, err := control.Create(t.Context(), log, "j", 1)
	require.NoError(t, err)
	require.NoError(t, plans.Append(t.Context(), first, nil, nil))
	out := exec.NewOutput(6)
	writer, err := New(l, 1, []*exec.Output{out}, stateless{}, shown(l, 1), func(observe.Step) {})
	require.NoError(t, err)
	require.NoError(t, writer.Resume(t.Context(), log, "j", nil))
	require.Equal(t, []route.Place{place}, writer.out[0].producer.Table().Places())
	reader, err := New(l, 2, []*exec.Output{exec.NewOutput(1)}, stateless{}, shown(l, 2), func(observe.Step) {})
	require.NoError(t, err)
	require.NoError(t, reader.Resume(t.Context(), log, "j", nil))
	require.False(t, reader.Begins(first))
	require.Equal(t, 4, reader.Home(4))
	var m envelope.Marker
	reader.Mark(&m)
	require.Zero(t, m.Adopted)
	require.True(t, reader.Begins(&second))
}
