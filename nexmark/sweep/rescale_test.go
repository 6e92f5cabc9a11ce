package sweep

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/overlay"
	"tailrace.dev/tailrace/tasks"
)

const rescaled1 = `
check: {events: 200}
series: [{kind: timeline, over: rescale-mode, workloads: count, protocols: fused, rates: 1000, warmup: 1s, duration: 3s,
  settings: {rescale: "500ms=3,2s:counts=4,2500ms=2", rescale-mode: [move, order-unaware, restart]}, values: [visible-max, moving]}]
`

// A series over the mode of a rescale runs each mode, also where the answer is checked, draws them side
// by side with the moment marked, lists what the rescales did, and judges the paper's claims.
func TestRescale(t *testing.T) {
	m := &machine{}
	r := runner(t, t.TempDir(), rescaled1, m)
	r.Env.Shared = func(name string) bool { return strings.HasPrefix(name, "rescale") || name == "keys" }
	exec := r.Exec
	r.Exec = func(ctx context.Context, args []string, tmp string) ([]byte, error) {
		for _, a := range args {
			if path, ok := strings.CutPrefix(a, "--timeline="); ok {
				var b strings.Builder
				require.NoError(t, driver.WriteTimelineHead(&b))
				for i := range 30 {
					require.NoError(t, driver.WriteMoment(&b, &driver.Moment{At: driver.MS(100 * (i + 1)), Visible: driver.Short{Max: 5}, Moving: driver.MS(i)}))
				}
				require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
			}
		}
		return exec(ctx, args, tmp)
	}
	rows, err := r.Run(t.Context())
	require.NoError(t, err)
	peaks := map[string]driver.MS{"move": 9, "order-unaware": 90, "restart": 40}
	var checks []string
	for _, row := range rows {
		require.Empty(t, row.Failed)
		command, mode := CommandText(row.Command), row.Case.Settings["rescale-mode"]
		require.Contains(t, command, "--rescale-mode="+mode)
		if row.Case.Check > 0 {
			checks = append(checks, mode)
			require.True(t, row.Check.Right)
			require.NotZero(t, row.Check.Rows, "the answer shows something")
			require.Contains(t, command, "--rescale=40=3,80:counts=4,120=2")
			require.Contains(t, command, "--rate=400")
			continue
		}
		require.Contains(t, command, "--rescale=500ms=3,2s:counts=4,2500ms=2")
		row.Bench.Rescaled = []driver.Rescaled{
			{Rescaled: tasks.Rescaled{Mode: mode, GroupsMoved: 99}}, // in the warm-up
			{Rescaled: tasks.Rescaled{Mode: mode, From: 2, To: 4, GroupsMoved: 7, KeyGroups: 16, Steps: 1, SettledMS: 12}, Effect: &driver.Effect{P99Before: 5, Peak: peaks[mode], Back: driver.Unseen()}},
			{NotDone: "late"},
		}
		require.Contains(t, row.Outcome(), "7 key groups moved, visible p99 5.0 ms before, peak ")
	}
	require.Equal(t, []string{"move", "order-unaware", "restart"}, checks)

	drawn := Figures(rows, overlay.Results{})
	require.Len(t, drawn, 2)
	f := drawn[1].Figure
	require.Equal(t, "timeline-1-moving.svg", drawn[1].File)
	require.Contains(t, f.Sub, "a stage is rescaled after 1s")
	require.Len(t, f.Panels, 1)
	require.Equal(t, 1.0, f.Panels[0].Mark)
	require.Equal(t, "count", f.Panels[0].Title)
	require.Len(t, f.Panels[0].Lines, 3)
	for i, mode := range checks {
		require.Equal(t, mode, f.Legend[i].Name)
		require.Equal(t, i, f.Panels[0].Lines[i].Series)
		require.InDelta(t, 290, f.Panels[0].Lines[i].Points[29].Y, 1e-6) // ms a second
	}

	table := rescaleTable(cells(rows))
	require.Len(t, table.Rows, 3)
	require.Equal(t, []string{"move", "2 → 4", "7 of 16", "1", "12", "5", "9", "1.8", "–"}, table.Rows[0][1:10])
	for _, row := range table.Rows {
		require.Len(t, row, len(table.Head))
		require.Contains(t, row[10], "Fig. 12")
	}
	verdicts := func() (v []string) {
		for _, c := range rescaleClaims(cells(rows)) {
			v = append(v, c.ID+" "+c.Verdict)
		}
		return v
	}
	require.Equal(t, []string{"M1 holds", "M2 holds", "M3 does not hold"}, verdicts())
	html := new(strings.Builder)
	require.NoError(t, (&Report{Spec: r.Spec, Rows: rows}).HTML(html))
	require.Contains(t, html.String(), "Rescales")
	require.Contains(t, html.String(), "at least 5 times")

	// A surge has a peak of its own. What an answer disproves, or what was not measured, confirms nothing.
	for _, row := range rows {
		row.Case.Settings["surge"] = "1s:1s=2000"
	}
	require.Empty(t, rescaleClaims(cells(rows)))
	for _, row := range rows {
		delete(row.Case.Settings, "surge")
	}
	require.Len(t, rescaleClaims(cells(rows)), 3)
	for _, row := range rows {
		if row.Case.Check > 0 {
			row.Check.Right = false
		}
	}
	require.Empty(t, rescaleClaims(cells(rows)))
	require.Equal(t, []bool{true, true, true}, rescaleTable(cells(rows)).Void)
	for _, row := range rows {
		if row.Bench != nil {
			row.Bench.Rescaled = row.Bench.Rescaled[2:]
		}
	}
	require.Nil(t, rescaleTable(cells(rows)))
}

// The figures of a rescale that a series of kind over draws.
func TestOverRescales(t *testing.T) {
	r := measuredAs(Step{}, 1, true)
	at := func(name string) (float64, int64) { return overValues[name].of(r) }
	for _, name := range []string{"peak", "peak-over-p99", "back", "settled", "groups-moved"} {
		_, n := at(name)
		require.Zero(t, n, name)
	}
	r.Bench.Rescaled = []driver.Rescaled{{Rescaled: tasks.Rescaled{GroupsMoved: 7, SettledMS: 12}, Effect: &driver.Effect{P99Before: 5, Peak: 9, Back: 100}}}
	for name, want := range map[string]float64{"peak": 9, "peak-over-p99": 1.8, "back": 100, "settled": 12, "groups-moved": 7} {
		v, n := at(name)
		require.EqualValues(t, 1, n, name)
		require.InDelta(t, want, v, 1e-9, name)
	}
	r.Bench.Rescaled[0].Effect = nil
	_, n := at("peak")
	require.Zero(t, n)
}
