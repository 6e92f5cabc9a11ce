package embedded_test

import (
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tailrace.dev/tailrace/internal/sim/embedded"
	"tailrace.dev/tailrace/internal/sim/seeded"
)

func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// TestEmbedded runs TAILRACE_SEEDS seeds, starting at TAILRACE_SEED. It stops at the first that
// fails.
func TestEmbedded(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	first, n := number("TAILRACE_SEED", 1), number("TAILRACE_SEEDS", 3)
	counts := map[string]int{}
	began := time.Now()
	for seed := first; seed < first+n && !t.Failed(); seed++ {
		plan := embedded.NewPlan(seed, seeded.On)
		var r *embedded.Result
		synctest.Test(t, func(*testing.T) {
			seeded.Seed(seed+1, 16)
			defer seeded.Seed(0, 0)
			r = embedded.Run(plan)
		})
		for k, v := range r.Counts {
			counts[k] += v
		}
		if len(r.Failures) > 0 {
			t.Errorf("found: after %d seeds, %v\n%s\n%s\n%v", seed-first+1, time.Since(began).Round(time.Millisecond), strings.Join(r.Failures[:min(len(r.Failures), 5)], "\n"), strings.Join(r.Story[max(0, len(r.Story)-60):], "\n"), plan)
		}
	}
	t.Logf("%d seeds in %v", n, time.Since(began).Round(time.Millisecond))
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%9d %s", counts[k], k)
	}
}
