package sim

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// seeds returns the number of runs: TAILRACE_SEEDS, or n if it is not set.
func seeds(n uint64) uint64 {
	if v, err := strconv.ParseUint(os.Getenv("TAILRACE_SEEDS"), 10, 64); err == nil {
		return v
	}
	return n
}

// TAILRACE_SEED replays one run.
func TestCluster(t *testing.T) {
	first, n := uint64(0), seeds(40)
	if v, err := strconv.ParseUint(os.Getenv("TAILRACE_SEED"), 10, 64); err == nil {
		first, n = v, 1
	}
	var sum Result
	for seed := first; seed < first+n; seed++ {
		r, err := Run(Config{Seed: seed})
		require.NoError(t, err, "TAILRACE_SEED=%d go test -run TestCluster ./internal/sim replays it; the end of the run:\n%s", seed, r.Trace)
		sum.Acked, sum.Void, sum.Records, sum.Seals, sum.Opens = sum.Acked+r.Acked, sum.Void+r.Void, sum.Records+r.Records, sum.Seals+r.Seals, sum.Opens+r.Opens
	}
	t.Logf("%d runs: %d acknowledged, %d void, %d records, %d shards opened, %d sealed", n, sum.Acked, sum.Void, sum.Records, sum.Opens, sum.Seals)
	require.NotZero(t, sum.Void)
	require.NotZero(t, sum.Seals)
}

// The same seed gives the same run.
func TestReplay(t *testing.T) {
	for seed := range uint64(4) {
		a, err := Run(Config{Seed: seed, Steps: 2000})
		require.NoError(t, err)
		b, err := Run(Config{Seed: seed, Steps: 2000})
		require.NoError(t, err)
		require.Equal(t, a, b)
	}
}

// Each pitfall that is put back in is found.
func TestPlantedBugs(t *testing.T) {
	limit := seeds(400)
	for name, bugs := range map[string]Bugs{
		"L1 a restarted primary continues":               {RestartedPrimary: true},
		"L3 a second shard before the first is resolved": {EarlyTwo: true},
		"L4 acknowledged at a majority":                  {AckAtMajority: true},
		"L5 half groups are reported":                    {HalfGroups: true},
		"L7 a frontier passes what is not held":          {EagerFrontier: true},
		"L9 reported before it is on disk":               {ReportUnsynced: true},
		"L10 an instance's value comes back":             {ForgetsCondition: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range limit {
				if _, err := Run(Config{Seed: seed, Bugs: bugs}); err != nil {
					t.Logf("found by seed %d: %v", seed, err)
					return
				}
			}
			require.Fail(t, "not found", "in %d runs", limit)
		})
	}
}
