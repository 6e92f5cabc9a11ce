package routing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/control"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/tags"
)

// A task that begins has the tables of the newest plan below its position. If that one has been trimmed, the plan at the position
// says what was before it.
func TestPlanBelow(t *testing.T) {
	log := mem.New(mem.Options{})
	plans, err := control.Create(t.Context(), log, "j", 1)
	require.NoError(t, err)
	table := func(epoch uint32) []byte {
		of, err := route.NewTable(epoch, 2, 2, nil)
		require.NoError(t, err)
		return of.Append(nil)
	}
	var at []sharedlog.LSN
	for i, r := range [][]envelope.Routes{nil, {{Table: table(1), Before: table(0)}}, {{Table: table(1)}}, {{Table: table(2), Before: table(1)}}} {
		p := envelope.Plan{Number: uint64(i + 1), Epoch: []uint32{0, 1, 1, 2}[i], Routes: r, Stages: []envelope.PlanStage{{Tasks: 1}}}
		require.NoError(t, plans.Append(t.Context(), &p, nil, nil))
		at = append(at, plans.At)
	}
	epochs := func(position sharedlog.LSN) (epoch uint32, settled bool) {
		p, err := planBelow(t.Context(), log, "j", position, 1)
		require.NoError(t, err)
		for i := range p.Routes {
			settled = len(p.Routes[i].Before) == 0
		}
		return p.Epoch, settled
	}
	check := func(position sharedlog.LSN, epoch uint32, settled bool) {
		t.Helper()
		e, s := epochs(position)
		require.Equal(t, epoch, e)
		require.Equal(t, settled, s)
	}
	check(at[0], 0, false)
	check(at[1], 0, false)
	check(at[1]+1, 1, false)
	check(at[2], 1, false)
	check(at[2]+1, 1, true)
	check(at[3], 1, true)
	check(at[3]+1, 2, false)
	require.NoError(t, log.Trim(t.Context(), tags.Control("j"), at[3]))
	check(at[3], 1, true)
	check(at[3]+1, 2, false)
}

// stateless is a chain without tables.
type stateless struct{ exec.Chain }

func (stateless) Tables() []exec.StateTable { return nil }

// An instance sends by the newest table, reads by that of its position, and has adopted what its predecessor had.
func TestResume(t *testing.T) {
	l := twoDomains(t)
	all := Domains(l)
	first := firstPlan(l)
	second := *first
	second.Number, second.Epoch = 2, 1
	table, err := route.NewTable(1, 4, 2, []route.Place{{Part: route.Part{Group: 1, N: 4}, Slot: 4}})
	require.NoError(t, err)
	second.Routes, err = Replaced(first, all, &all[0], table)
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	plans, err := control.Create(t.Context(), log, "j", 1)
	require.NoError(t, err)
	require.NoError(t, plans.Append(t.Context(), first, nil, nil))
	require.NoError(t, plans.Append(t.Context(), &second, nil, nil))
	for name, c := range map[string]struct {
		last    *envelope.Marker
		reached bool
		adopted uint32
	}{
		"no marker":             {nil, false, 0},
		"below the plan":        {&envelope.Marker{Position: plans.At}, false, 0},
		"behind it":             {&envelope.Marker{Position: plans.At + 1}, true, 0},
		"behind it and adopted": {&envelope.Marker{Position: plans.At + 1, Adopted: 1}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			task, err := New(l, 1, []*exec.Output{exec.NewOutput(6)}, stateless{}, shown(l, 1), func(observe.Step) {})
			require.NoError(t, err)
			require.NoError(t, task.Resume(t.Context(), log, "j", c.last))
			require.Equal(t, !c.reached, task.Begins(&second))
			var m envelope.Marker
			task.Mark(&m)
			require.EqualValues(t, 1, m.Epoch)
			require.Equal(t, c.adopted, m.Adopted)
		})
	}
}
