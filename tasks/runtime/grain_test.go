package runtime

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/control"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/tags"
)

// switched is a chain that notes its grains.
type switched struct {
	exec.Chain
	to []exec.Grain
}

func (s *switched) Switch(g exec.Grain) { s.to = append(s.to, g) }

// A task that begins has the grain of the newest plan below its position, or at it: those below that one may have been
// trimmed.
func TestGrainAt(t *testing.T) {
	log := mem.New(mem.Options{})
	plans, err := control.Create(t.Context(), log, "j", 1)
	require.NoError(t, err)
	var at []sharedlog.LSN
	for _, g := range []*envelope.Grain{nil, {PerKey: true, Delay: 5}, {}} {
		p := envelope.Plan{Number: uint64(len(at) + 1), Stages: []envelope.PlanStage{{Tasks: 1, Grain: g}}}
		require.NoError(t, plans.Append(t.Context(), &p, nil, nil))
		at = append(at, plans.At)
	}
	grains := func(position sharedlog.LSN) []exec.Grain {
		c := new(switched)
		spec := &exec.StageSpec{Grain: &exec.Grain{Kind: exec.GrainAuto}}
		task := &task{assignment: assignment{spec: spec}, cfg: &Config{Log: log, Layout: &layout.Layout{Job: "j"}}, chain: c}
		require.NoError(t, task.grainAt(t.Context(), position))
		return c.to
	}
	key, task := exec.Grain{Kind: exec.GrainKey, Delay: 5}, exec.Grain{Kind: exec.GrainTask}
	require.Empty(t, grains(at[0]), "as it began")
	require.Equal(t, []exec.Grain{key}, grains(at[1]))
	require.Equal(t, []exec.Grain{key}, grains(at[2]-1))
	require.NoError(t, log.Trim(t.Context(), tags.Control("j"), at[2]))
	require.Equal(t, []exec.Grain{task}, grains(at[2]))
	require.Equal(t, []exec.Grain{task}, grains(at[2]+1))
}
