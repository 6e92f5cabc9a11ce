package servers_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/sim/seeded"
	"tailrace.dev/tailrace/internal/sim/servers"
)

// A seed is one run, as far as the package comment says: with the overlay two runs tell
// the same story, line by line.
func TestReplay(t *testing.T) {
	if !seeded.On {
		return // then only the plan is the same: TestPlanIsData
	}
	for seed, n := number("TAILRACE_SEED", 1), number("TAILRACE_SEEDS", 2); n > 0; seed, n = seed+1, n-1 {
		plan := servers.NewPlan(seed, true, false)
		plan.Verbose = os.Getenv("TAILRACE_SIM_VERBOSE") != ""
		first, second := play(t, plan, patience), play(t, plan, patience)
		require.NotZero(t, first.Digest, "seed %d: %v", seed, first.Err())
		a, b := strings.Split(first.Story, "\n"), strings.Split(second.Story, "\n")
		for i := range max(len(a), len(b)) {
			if i >= len(a) || i >= len(b) || a[i] != b[i] {
				t.Errorf("seed %d: the runs differ from line %d of %d on:\n%s\n\n%s", seed, i, len(a), around(a, i), around(b, i))
				break
			}
		}
		if !t.Failed() {
			require.Equal(t, first.Digest, second.Digest, "seed %d", seed)
			require.Equal(t, first.Operations, second.Operations, "seed %d", seed)
		}
	}
}

func around(lines []string, i int) string {
	return strings.Join(lines[min(len(lines), max(0, i-2)):min(len(lines), i+2)], "\n")
}
