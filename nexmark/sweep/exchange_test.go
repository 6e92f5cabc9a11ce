package sweep

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/overlay"
)

// A series over the exchange says what share of keyby's bytes the others send; an exchange of nothing
// is drawn as 0. Rates are compared only where the link is capped.
func TestExchangeClaims(t *testing.T) {
	r := runner(t, t.TempDir(), `
check: {events: 200}
defaults: {kind: over, over: exchange, protocols: fused, rates: max, values: [exchange-bytes, exchange-items, throughput]}
series:
  - {workloads: ysb, settings: {exchange: [keyby, local, ahead], partition-by: key}}
  - {workloads: ysb, settings: {exchange: [keyby, local, ahead], partition-by: key, link-rate: 10MB}}
  - {workloads: count, settings: {exchange: [keyby, global]}}
`, &machine{})
	rows, err := r.Run(t.Context())
	require.NoError(t, err)
	bytes := map[string]float64{"keyby": 8, "local": 0.08, "ahead": 0, "global": 0.009}
	for _, row := range rows {
		require.Empty(t, row.Failed)
		if row.Case.Check > 0 {
			continue
		}
		how := row.Case.Settings["exchange"]
		row.Bench.Seconds, row.Bench.Achieved = 2, map[string]float64{"keyby": 1000, "local": 2999, "ahead": 5000, "global": 1000}[how]
		row.Bench.Exchange = &driver.Exchange{Items: 500, BytesPerEvent: bytes[how]}
	}
	drawn := Figures(rows, overlay.Results{})
	require.Equal(t, "over-1-exchange-exchange-bytes.svg", drawn[0].File)
	require.Len(t, drawn[0].Figure.Panels[0].Lines[0].Points, 3)
	require.Zero(t, drawn[0].Figure.Panels[0].Lines[0].Points[2].Y)
	require.Equal(t, 0.25, drawn[1].Figure.Panels[0].Lines[0].Points[0].Y, "500 items of 2000 events")
	told := func() (v []string) {
		for _, c := range exchangeClaims(cells(rows)) {
			v = append(v, c.ID+" "+c.Verdict+": "+strings.Join(c.Numbers, "; "))
		}
		return v
	}
	require.Equal(t, []string{
		"X1 holds: ✓ series 1 ysb: 1.000 % (0.08 of 8 bytes an event); ✓ series 2 ysb, link of 10MB/s: 1.000 % (0.08 of 8 bytes an event)",
		"X2 does not hold: ✗ series 3 count: 0.112 % (0.009 of 8 bytes an event)",
		"X3 holds: ✓ series 1 ysb: 0.000 % (0 of 8 bytes an event); ✓ series 2 ysb, link of 10MB/s: 0.000 % (0 of 8 bytes an event)",
		"X4 holds for 1 of 2: ✗ series 2 ysb, link of 10MB/s: local 3.0 times (2999, 1k events/s); ✓ series 2 ysb, link of 10MB/s: ahead 5.0 times (5k, 1k events/s)",
	}, told())
	html := new(strings.Builder)
	require.NoError(t, (&Report{Spec: r.Spec, Rows: rows}).HTML(html))
	require.Contains(t, html.String(), "exchange nothing")

	for _, row := range rows { // what an answer disproves confirms nothing
		if row.Case.Check > 0 && row.Case.Workload == "count" {
			row.Check.Right = false
		}
	}
	require.Contains(t, told()[1], "X2 not measured")
	require.Nil(t, exchangeClaims(nil))
}
