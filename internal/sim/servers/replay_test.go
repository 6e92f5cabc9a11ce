package servers_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/sim/seeded"
	"tailrace.dev/tailrace/internal/sim/servers"
)

// Two runs of a seed come to the same verdict. The same story to the line is not promised (see the
// package comment): the test logs for how many seeds the stories are equal, and where the others
// begin to differ. It runs TAILRACE_SEEDS seeds, with the overlay only.
func TestReplay(t *testing.T) {
	if !seeded.On {
		return // without it only the plan is the same: TestPlanIsData
	}
	first, n, same := number("TAILRACE_SEED", 1), number("TAILRACE_SEEDS", 2), 0
	for seed := first; seed < first+n; seed++ {
		plan := servers.NewPlan(seed, true, false)
		plan.Verbose = os.Getenv("TAILRACE_SIM_VERBOSE") != ""
		one, two := play(t, plan, patience), play(t, plan, patience)
		require.Equal(t, one.Err(), two.Err(), "seed %d", seed)
		a, b := strings.Split(one.Story, "\n"), strings.Split(two.Story, "\n")
		differ := -1
		for i := range max(len(a), len(b)) {
			if i >= len(a) || i >= len(b) || a[i] != b[i] {
				differ = i
				break
			}
		}
		if differ < 0 {
			same++
			require.Equal(t, one.Digest, two.Digest, "seed %d", seed)
			require.Equal(t, one.Operations, two.Operations, "seed %d", seed)
			continue
		}
		t.Logf("seed %d: the runs differ from line %d of %d on:\n%s\n\n%s", seed, differ+1, len(a), around(a, differ), around(b, differ))
	}
	t.Logf("%d of %d seeds were played twice to the same line", same, n)
}

func around(lines []string, i int) string {
	return strings.Join(lines[min(len(lines), max(0, i-2)):min(len(lines), i+2)], "\n")
}
