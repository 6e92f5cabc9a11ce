package rescale

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each mode restores all groups of a receiver, in its order, and none twice. Restart restores none:
// the tasks start again.
func TestModes(t *testing.T) {
	order := map[string][][]int{
		ModeMove:         {{2, 3, 7}},
		ModeRebuild:      {{2, 3, 7}},
		ModeStopStage:    {{2, 3, 7}},
		ModeOrderUnaware: {{2}, {3}, {7}},
		ModeGradual:      {{2, 3, 7}}, // a step has one
		ModeRestart:      nil,
	}
	steps := map[string]int{ModeMove: 5, ModeRebuild: 5, ModeStopStage: 0, ModeOrderUnaware: 5, ModeGradual: 1, ModeRestart: 0}
	for _, m := range Modes {
		of, err := ModeOf(m.Name)
		require.NoError(t, err)
		require.Same(t, m, of)
		var did [][]int
		missing := []int{2, 3, 7}
		for len(missing) > 0 {
			next := m.Next(missing)
			if len(next) == 0 {
				require.True(t, m.Restarts, m.Name)
				break
			}
			did = append(did, next)
			missing = missing[len(next):]
		}
		require.Equal(t, order[m.Name], did, m.Name)
		require.Equal(t, steps[m.Name], m.Step(5), m.Name)
		require.Equal(t, m.Name == ModeMove, m.Memory, m.Name)
	}
	require.Len(t, order, len(Modes))
	m, err := ModeOf("")
	require.NoError(t, err)
	require.Equal(t, ModeMove, m.Name)
	_, err = ModeOf("quick")
	require.EqualError(t, err, `there is no mode "quick"; the modes are move, rebuild, stop-stage, order-unaware, gradual, restart`)
}
