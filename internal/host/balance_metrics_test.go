package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/manager"
)

// A manager serves the metrics of each stage that it balances, with job and stage.
func TestBalanceMetrics(t *testing.T) {
	got := map[[3]string]float64{}
	balanceMetrics([]manager.JobStatus{
		{Name: "whole", Balanced: []tasks.Balanced{
			{Request: tasks.Balance{Stage: "a"}, Degree: 0.5, Measured: true, Switches: 2, MovedGroups: 7}, {Request: tasks.Balance{Stage: "b"}, Degree: 1},
		}},
		{Name: "slots", Balanced: []tasks.Balanced{{Request: tasks.Balance{Stage: "a"}, Slots: 4, SlotsUsed: 3, Epoch: 9}}},
		{Name: "none"},
	}, func(name string, v float64, labels ...string) { got[[3]string{name, labels[0], labels[1]}] = v })
	require.Equal(t, map[[3]string]float64{
		{"balance_degree", "whole", "a"}: 0.5, {"balance_steps_total", "whole", "a"}: 2, {"balance_moves_total", "whole", "a"}: 7,
		{"balance_steps_total", "whole", "b"}: 0, {"balance_moves_total", "whole", "b"}: 0,
		{"balance_steps_total", "slots", "a"}: 0, {"balance_moves_total", "slots", "a"}: 0,
		{"slots", "slots", "a"}: 4, {"slots_used", "slots", "a"}: 3, {"routing_epoch", "slots", "a"}: 9,
	}, got)
}
