package balance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/route"
)

// The numbers of the paper's Table 3 and of the computation in section 3.6 of the design.
func TestCompute(t *testing.T) {
	for _, c := range []struct {
		Case
		least, most float64
	}{
		{Case{60, 128, 1_000_000, "sequential", "uniform", "hash", nil, 0}, 0.60, 0.70}, // Flink's
		{Case{60, 1024, 1_000_000, "sequential", "uniform", "hash", nil, 0}, 0.88, 0.95},
		{Case{60, 1024, 1_000_000, "sequential", "uniform", "least-count", nil, 0}, 0.93, 1},
		{Case{8, 256, 1_000_000, "sequential", "zipf:0.8", "hash", nil, 0}, 0.80, 0.95},
		{Case{8, 1024, 1_000_000, "sequential", "zipf:0.8", "least-count", nil, 0}, 0.985, 1},
		{Case{8, 1024, 1_000_000, "sequential", "zipf:1.1", "least-count", nil, 0}, 0.95, 1},
		{Case{8, 1024, 1_000_000, "sequential", "zipf:1.1", "least-key", nil, 0}, 0.1, 0.6},
		{Case{8, 1024, 100_000, "prefix", "uniform", "modulo", nil, 0}, 0, 0},
		{Case{8, 1024, 100_000, "prefix", "uniform", "hash", nil, 0}, 0.95, 1},
		{Case{8, 1024, 100_000, "sequential", "uniform", "modulo", nil, 0}, 0.98, 1},
		{Case{60, 1024, 1_000_000, "sequential", "zipf:1.1", "auto", nil, 0}, 0.05, 0.2}, // a key is more than a task
		{Case{60, 256, 1_000_000, "sequential", "uniform", "least-count", nil, 0}, 0.75, 0.90},
		{Case{60, 256, 1_000_000, "sequential", "uniform", "least-count", nil, 64}, 0.98, 1},
		{Case{60, 256, 1_000_000, "sequential", "zipf:0.8", "least-count", nil, 64}, 0.98, 1},
		{Case{60, 1024, 1_000_000, "sequential", "zipf:0.8", "auto", nil, 32}, 0.98, 1},
		{Case{8, 64, 1_000_000, "sequential", "zipf:1.1", "least-count", nil, 0}, 0.80, 0.92},
		{Case{8, 64, 1_000_000, "sequential", "zipf:1.1", "least-count", nil, 8}, 0.98, 1},
		{Case{8, 64, 1_000_000, "sequential", "zipf:1.1", "hash", nil, 8}, 0.2, 0.4}, // no table
		{Case{4, 1024, 100_000, "sequential", "uniform", "weight", []float64{3, 1, 1, 1}, 0}, 0.985, 1},
	} {
		all, err := Compute([]Case{c.Case})
		require.NoError(t, err)
		r := all[0]
		require.GreaterOrEqual(t, r.Degree, c.least, "%+v", r)
		require.LessOrEqual(t, r.Degree, c.most, "%+v", r)
		require.GreaterOrEqual(t, r.Extra, 0.0)
		require.LessOrEqual(t, r.PlacedKeys, r.Placed)
		require.LessOrEqual(t, r.Placed, c.Slots)
		if c.Of == "zipf:1.1" && c.Tasks == 60 {
			require.InDelta(t, 7.4, r.Hottest, 0.5)
		}
	}
}

// Cases in a row have the result that each has alone.
func TestInARow(t *testing.T) {
	var cases []Case
	for _, keys := range []int64{100, 5000} {
		for _, of := range []string{"uniform", "zipf:0.8"} {
			for _, d := range []string{"hash", "least-count", "modulo", "auto"} {
				cases = append(cases, Case{8, 256, keys, "prefix", of, d, nil, 0})
			}
		}
	}
	all, err := Compute(cases)
	require.NoError(t, err)
	for i, c := range cases {
		one, err := Compute([]Case{c})
		require.NoError(t, err)
		require.Equal(t, one[0], all[i])
	}
}

func TestRefused(t *testing.T) {
	for want, c := range map[string]Case{
		"8 tasks, 4 key groups: each task needs one":  {8, 4, 100, "sequential", "uniform", "hash", nil, 0},
		"4 key groups and 16384 slots":                {2, 4, 100, "sequential", "uniform", "least-count", nil, route.MaxGroups},
		`there is no dispatch "best"`:                 {2, 4, 100, "sequential", "uniform", "best", nil, 0},
		"use uniform or zipf:S with S from 0.01 to 4": {2, 4, 100, "sequential", "normal", "hash", nil, 0},
	} {
		_, err := Compute([]Case{c})
		require.ErrorContains(t, err, want)
	}
}
