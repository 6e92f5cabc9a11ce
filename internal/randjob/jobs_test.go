package randjob

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/randjob/draw"
	"tailrace.dev/tailrace/internal/randjob/model"
	"tailrace.dev/tailrace/internal/sim/seeded"
)

// number reads a number from the environment.
func number(t testing.TB, name string, otherwise int) int {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err, name)
	return n
}

// known lists features of jobs in which the engine has faults that are known and not mended
// yet. Jobs that have one of them are left out; TAILRACE_WITHOUT replaces the list.
const known = ""

// has reports whether a job has one of the features that known may list, or an operator of
// that name.
func has(j *model.Job, feature string) bool {
	switch feature {
	case "hold":
		return j.Hold != 0
	case "auto":
		return slices.ContainsFunc(j.Nodes, func(n model.Node) bool { return n.Clocks == model.AutoClocks })
	case "slots":
		return j.Settings.Slots > 0
	case "big":
		big := false
		each(j, func(e *model.Event) { big = big || e.Size >= 100_000 })
		return big
	}
	return slices.ContainsFunc(j.Nodes, func(n model.Node) bool { return string(n.Op) == feature })
}

// The rows of random jobs are those of the brute force.
//
//	TAILRACE_SEEDS=N     how many jobs (default 1000, with -short 100)
//	TAILRACE_SEED=S      the first seed; without TAILRACE_SEEDS this one only, TAILRACE_TRIES times
//	TAILRACE_ONLY=OP     only jobs with this operator, or feature (has)
//	TAILRACE_FAILURES=N  how many jobs may fail before the test ends (default 1)
func TestJobs(t *testing.T) {
	workers := 2
	if seeded.On { // what a seed plays follows from it only if nothing else runs
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		workers = 1
	}
	jobs := 1000
	if testing.Short() {
		jobs = 100
	}
	first, n, tries := number(t, "TAILRACE_SEED", 1), number(t, "TAILRACE_SEEDS", jobs), 1
	without := strings.Split(known, ", ")
	if s, ok := os.LookupEnv("TAILRACE_WITHOUT"); ok {
		without = strings.Split(s, ", ")
	}
	if os.Getenv("TAILRACE_SEED") != "" && os.Getenv("TAILRACE_SEEDS") == "" {
		n, tries, without = 1, number(t, "TAILRACE_TRIES", 20), nil
		t.Logf("%v%+v", draw.Job(uint64(first)), draw.Job(uint64(first)).Settings)
	}
	only := os.Getenv("TAILRACE_ONLY")
	begin, all, most := time.Now(), newTotal(), number(t, "TAILRACE_FAILURES", 1)
	type found struct {
		j *model.Job
		f *Failure
	}
	var mu sync.Mutex
	var failures []found
	var wg sync.WaitGroup
	for next := range min(workers, n) {
		wg.Go(func() {
			for seed := first + next; seed < first+n; seed += workers {
				j := draw.Job(uint64(seed))
				if only != "" && !has(j, only) || slices.ContainsFunc(without, func(f string) bool { return has(j, f) }) {
					continue
				}
				var played Played
				var f *Failure
				for try := 0; try < tries && f == nil; try++ {
					played, f = play(t, j, try)
				}
				all.add(j, &played)
				mu.Lock()
				if f != nil {
					failures = append(failures, found{j, f})
					t.Logf("found: seed %d, after %d jobs, %.0f s: %s", seed, all.jobs, time.Since(begin).Seconds(), f.Kind)
				}
				enough := len(failures) >= most
				mu.Unlock()
				if enough {
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("seeds %d to %d: %.0f s", first, first+n-1, time.Since(begin).Seconds())
	all.log(t)
	for _, x := range failures {
		report(t, x.j, x.f)
	}
}
