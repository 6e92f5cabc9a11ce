package sweep

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The claim about scaling compares the cases of a series that differ in the number of tasks only.
func TestScalingClaims(t *testing.T) {
	r := runner(t, t.TempDir(), `
check: {events: 200}
defaults: {kind: over, over: parallelism, protocols: fused, rates: max, parallelism: [1, 2, 4], values: [throughput, cpu]}
series:
  - {workloads: [ysb, lvd], settings: {partition-by: key}}
`, &machine{})
	rows, err := r.Run(t.Context())
	require.NoError(t, err)
	cpu := map[int]float64{1: 100, 2: 90, 4: 103}
	measured := func() Claim {
		for _, row := range rows {
			if row.Case.Check == 0 {
				row.Bench.CPUPerEvent = cpu[row.Case.Parallelism]
				if row.Case.Workload == "lvd" {
					row.Bench.CPUPerEvent *= 2
				}
			}
		}
		claims := scalingClaims(cells(rows))
		require.Len(t, claims, 1)
		return claims[0]
	}
	c := measured()
	require.Equal(t, "holds", c.Verdict)
	require.Equal(t, []string{
		"✓ series 1 ysb: p1: 100, p2: 90, p4: 103 ns an event, 1.14×",
		"✓ series 1 lvd: p1: 200, p2: 180, p4: 206 ns an event, 1.14×",
	}, c.Numbers)

	cpu[4] = 104
	require.Equal(t, "does not hold", measured().Verdict)

	for _, row := range rows { // what an answer disproves confirms nothing
		if row.Case.Check > 0 && row.Case.Workload == "ysb" {
			row.Check.Right = false
		}
	}
	require.Len(t, measured().Numbers, 1)
	require.Nil(t, scalingClaims(nil))
}
