package sweep

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/overlay"
	"tailrace.dev/tailrace/nexmark/sweep/plot"
)

const course1 = `
check: {events: 200}
series: [{kind: timeline, queries: 8, protocols: [fused, marker], rates: [1000, 2000], duration: 2s, fail-at: 1s, recovery: [none, snapshot], values: [throughput, visible-max]}]
`

// A series of kind timeline runs each case with --timeline and --fail-at, checks its answers, keeps
// the timeline in the row, and draws a line for each protocol.
func TestTimeline(t *testing.T) {
	m := &machine{}
	r := runner(t, t.TempDir(), course1, m)
	exec := r.Exec
	r.Exec = func(ctx context.Context, args []string, tmp string) ([]byte, error) {
		for _, a := range args {
			if path, ok := strings.CutPrefix(a, "--timeline="); ok {
				var b strings.Builder
				require.NoError(t, driver.WriteTimelineHead(&b))
				moments := fixedTimeline(&Case{Rate: 1000, Recovery: "none"}, 1, 5)
				for i := range moments {
					require.NoError(t, driver.WriteMoment(&b, &moments[i]))
				}
				require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
			}
		}
		return exec(ctx, args, tmp)
	}
	rows, err := r.Run(t.Context())
	require.NoError(t, err)
	for _, row := range rows {
		require.Empty(t, row.Failed)
		command := CommandText(row.Command)
		require.Equal(t, row.Case.Check == 0, strings.Contains(command, "--timeline="), command)
		require.Equal(t, row.Case.Check == 0, strings.Contains(command, "--fail-at=1s"), command)
		require.Equal(t, row.Case.Recovery == "none", strings.Contains(command, "--checkpoints=none"), command)
		if row.Case.Check == 0 {
			require.Len(t, row.Timeline, 20)
		}
	}
	again, _, err := ReadRows(r.Dir + "/rows.jsonl")
	require.NoError(t, err)
	require.Len(t, again, len(rows))
	for _, rows := range [][]*Row{rows, again} {
		drawn := Figures(rows, overlay.Results{})
		require.Len(t, drawn, 2)
		require.Equal(t, "timeline-1-throughput.svg", drawn[0].File)
		require.Equal(t, "timeline-1-visible-max.svg", drawn[1].File)
		f := drawn[0].Figure
		require.Contains(t, f.Sub, "a task loses its memory after 1s")
		var titles []string
		for _, p := range f.Panels {
			titles = append(titles, p.Title)
			require.True(t, p.Time)
			require.Equal(t, 1.0, p.Mark)
			require.Len(t, p.Lines, 2)
		}
		require.Equal(t, []string{"Q8, 1k/s, recovery none", "Q8, 1k/s, recovery snapshot", "Q8, 2k/s, recovery none", "Q8, 2k/s, recovery snapshot"}, titles)
		pts := f.Panels[0].Lines[0].Points
		require.Len(t, pts, 20)
		require.InDelta(t, 1000, pts[3].Y, 20)
		require.Zero(t, pts[12].Y, "a standstill is shown, not left out")
		require.True(t, math.IsNaN(drawn[1].Figure.Panels[0].Lines[0].Points[12].Y), "no latency is no 0")
	}
	// A child that writes no timeline has failed.
	r = runner(t, t.TempDir(), course1, m)
	rows, err = r.Run(t.Context())
	require.NoError(t, err)
	require.Contains(t, rows[len(rows)-1].Failed, "timeline.csv: no such file")
}

// A point of a timeline is the median of the trials; a trial without a step does not count as 0.
func TestTimelineOfTrials(t *testing.T) {
	c := &cell{Case: Case{Kind: Timeline}}
	for _, events := range [][]int64{{100, 10}, {300, 10, 50}, {200}} {
		r := measuredAs(Step{}, 1, true)
		for i, n := range events {
			r.Timeline = append(r.Timeline, driver.Moment{At: driver.MS(100 * (i + 1)), Events: n, Visible: driver.Short{P50: driver.Unseen()}})
		}
		c.rows = append(c.rows, r)
	}
	ys := func(name string) (ys []float64) {
		for _, p := range c.course(timelineValues[name]) {
			ys = append(ys, p.Y)
		}
		return ys
	}
	require.InDeltaSlice(t, []float64{2000, 100, 500}, ys("throughput"), 1e-6)
	for _, y := range ys("visible-p50") {
		require.True(t, math.IsNaN(y))
	}
	late := measuredAs(Step{}, 1, true)
	late.Timeline = []driver.Moment{{At: 100, Events: 10}, {At: 310, Events: 42}, {At: 390, Events: 16}}
	c.rows = []*Row{late}
	require.InDeltaSlice(t, []float64{100, 200, 200, 200}, ys("throughput"), 1e-6, "a late moment covers the steps before")
	require.False(t, (&plot.Figure{}).Holds())
}
