package sweep

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/overlay"
	"tailrace.dev/tailrace/tasks"
)

const balanced1 = `
check: {events: 200}
series: [{kind: over, over: dispatch, workloads: count, protocols: fused, rates: 1000, warmup: 1s, duration: 3s,
  settings: {balance: "below=0.9", dispatch: [hash, least-count]}, values: [degree, switches]},
  {kind: over, over: balance, workloads: count, protocols: fused, rates: 1000, settings: {balance: [off, "items=100"]}}]
`

// A series over the dispatch moves key groups also where the answer is checked, and lists and draws how
// even the tasks' loads were.
func TestBalance(t *testing.T) {
	m := &machine{}
	r := runner(t, t.TempDir(), balanced1, m)
	r.Env.Shared = func(name string) bool { return name == "balance" || name == "dispatch" || name == "keys" }
	rows, err := r.Run(t.Context())
	require.NoError(t, err)
	degrees, checks := map[string]float64{"hash": 0.8, "least-count": 0.99}, 0
	for _, row := range rows {
		require.Empty(t, row.Failed)
		command, dispatch, when := CommandText(row.Command), row.Case.Settings["dispatch"], row.Case.Settings["balance"]
		if row.Case.Check > 0 {
			checks++
			require.True(t, row.Check.Right)
			if when == "off" {
				require.Contains(t, command, "--balance=off")
				require.NotContains(t, command, "--rate")
				continue
			}
			require.Contains(t, command, "--balance=every=20ms")
			require.Contains(t, command, "--rate=400")
			continue
		}
		require.Contains(t, command, "--balance="+when)
		if when != "below=0.9" {
			continue
		}
		require.Contains(t, command, "--dispatch="+dispatch)
		row.Bench.Balanced = &driver.Balanced{Balanced: tasks.Balanced{Mean: degrees[dispatch], Extra: 0.05, Switches: 3, MovedGroups: 12, SlowestMS: 7}, Waited: 4}
		require.Contains(t, row.Outcome(), "3 steps")
	}
	require.Equal(t, 4, checks)

	drawn := Figures(rows, overlay.Results{})
	require.Equal(t, "over-1-dispatch-degree.svg", drawn[0].File)
	require.Equal(t, 0.99, drawn[0].Figure.Panels[0].Lines[0].Points[1].Y)
	table := balanceTable(cells(rows))
	require.Len(t, table.Rows, 2, "only cases that were balanced")
	require.Equal(t, []string{"least-count", "below=0.9"}, table.Rows[1][1:3])
	require.Equal(t, []string{"0.990", "5", "3", "12", "7", "4", "0"}, table.Rows[1][4:])
	require.Len(t, table.Head, len(table.Rows[0]))
	html := new(strings.Builder)
	require.NoError(t, (&Report{Spec: r.Spec, Rows: rows}).HTML(html))
	require.Contains(t, html.String(), "producers stalled, ms")
	require.Nil(t, balanceTable(nil))
}
