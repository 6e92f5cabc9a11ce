package servers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/sim/seeded"
	"tailrace.dev/tailrace/internal/sim/servers"
)

func number(name string, otherwise uint64) uint64 {
	if v, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return v
	}
	return otherwise
}

// play runs a plan in a process of its own. A process that hangs, panics or leaks is an ordinary
// failure.
func play(t testing.TB, plan *servers.Plan, patience time.Duration) *servers.Result {
	dir, err := os.MkdirTemp("", "tailrace-sim-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	b, err := json.Marshal(plan)
	require.NoError(t, err)
	in, out := filepath.Join(dir, "plan.json"), filepath.Join(dir, "result.json")
	require.NoError(t, os.WriteFile(in, b, 0o644))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPlay$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), envPlan+"="+in, envResult+"="+out, "GOTRACEBACK=all")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // it prints its goroutines
	cmd.WaitDelay = 10 * time.Second
	runErr := cmd.Run()
	r := new(servers.Result)
	if b, err := os.ReadFile(out); err == nil {
		require.NoError(t, json.Unmarshal(b, r))
	}
	r.Plan = plan
	if runErr != nil && len(r.Failures) == 0 {
		what := "crash"
		if ctx.Err() != nil {
			what = "hang"
		}
		text := said.String()
		head, _, _ := strings.Cut(text, "\n\n")
		r.Failures = []servers.Failure{{Check: what, Text: fmt.Sprintf("%v\n%s", runErr, head)}}
		r.Story += "\n" + text
	}
	return r
}

// batch runs seeds, several at a time, and calls took for each result, one at a time.
func batch(t testing.TB, first, n uint64, jobs int, took func(*servers.Result) (more bool)) {
	var mu sync.Mutex
	next, stop := first, false
	var wg sync.WaitGroup
	for range jobs {
		wg.Go(func() {
			for {
				mu.Lock()
				seed := next
				next++
				over := stop || seed >= first+n
				mu.Unlock()
				if over {
					return
				}
				plan := servers.NewPlan(seed, seeded.On, os.Getenv("TAILRACE_SIM_KNOWN") != "")
				plan.Verbose = os.Getenv("TAILRACE_SIM_VERBOSE") != ""
				r := play(t, plan, patience)
				mu.Lock()
				if !took(r) {
					stop = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// patience bounds one run, in real time.
const patience = 5 * time.Minute

// TestServers runs TAILRACE_SEEDS seeds (few by default: make sim-servers and make sim-long run
// more), starting at TAILRACE_SEED; with TAILRACE_SEED alone it runs only that one. It reduces a
// failing plan and writes both stories to files.
func TestServers(t *testing.T) {
	first, n := number("TAILRACE_SEED", 1), number("TAILRACE_SEEDS", 4)
	if os.Getenv("TAILRACE_SEED") != "" && os.Getenv("TAILRACE_SEEDS") == "" {
		n = 1
	}
	began := time.Now()
	counts := map[string]int{}
	runs, operations, linear, failed := 0, 0, 0, 0
	var virtual time.Duration
	most := int(number("TAILRACE_SIM_FAILURES", 1))
	batch(t, first, n, int(number("TAILRACE_SIM_JOBS", 1)), func(r *servers.Result) bool {
		runs++
		operations, linear, virtual = operations+r.Operations, linear+r.Linear, virtual+r.Virtual
		for k, v := range r.Counts {
			counts[k] += v
		}
		if r.Err() != nil {
			failed++
			t.Logf("found: after %d seeds, %.1f s", runs, time.Since(began).Seconds())
			tell(t, r)
		} else if os.Getenv("TAILRACE_SIM_TELL") != "" {
			t.Log(servers.Tell(r))
		}
		return failed < most
	})
	took := time.Since(began)
	t.Logf("%d seeds in %v, %.2f seeds/s: %v of virtual time, %d operations, %d judged by porcupine; %d seeds failed",
		runs, took.Round(time.Second), float64(runs)/took.Seconds(), virtual.Round(time.Second), operations, linear, failed)
	if testing.Verbose() {
		for _, k := range slices.Sorted(maps.Keys(counts)) {
			t.Logf("%8d %s", counts[k], k)
		}
	}
}

// TestLongRun runs plans of more than 10⁶ operations each, with TAILRACE_SOAK only.
func TestLongRun(t *testing.T) {
	if os.Getenv("TAILRACE_SOAK") == "" {
		t.Skip("set TAILRACE_SOAK=1")
	}
	const want = 1_000_000
	for seed, first := number("TAILRACE_SEED", 1), number("TAILRACE_SEED", 1); seed < first+number("TAILRACE_SEEDS", 3); seed++ {
		for k := 10; ; k *= 2 {
			plan := servers.NewPlan(seed, seeded.On, false)
			plan.Grow(k)
			began := time.Now()
			r := play(t, plan, time.Hour)
			t.Logf("seed %d, %d times as long: %d operations, %d judged by porcupine, %v of virtual time, in %v", seed, k, r.Operations, r.Linear, r.Virtual.Round(time.Second), time.Since(began).Round(time.Second))
			if r.Err() != nil {
				tell(t, r)
				return
			}
			if r.Operations >= want || k >= 1000 {
				require.GreaterOrEqual(t, r.Operations, want)
				break
			}
		}
	}
}

// tell fails the test with a run's story, and with that of a smaller run that fails in the same
// way, if it finds one within TAILRACE_SIM_SHRINK tries (default 60; 0: none).
func tell(t *testing.T, r *servers.Result) {
	dir := os.Getenv("TAILRACE_KEEP")
	if dir == "" {
		dir = os.TempDir()
	}
	write := func(r *servers.Result, suffix string) (story, plan string) {
		name := filepath.Join(dir, fmt.Sprintf("tailrace-sim-%d%s", r.Plan.Seed, suffix))
		b, err := json.MarshalIndent(r.Plan, "", " ")
		require.NoError(t, err)
		story, plan = name+".story", name+".json"
		require.NoError(t, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(story, []byte(servers.Tell(r)), 0o644), os.WriteFile(plan, b, 0o644)))
		return story, plan
	}
	story, plan := write(r, "")
	t.Errorf("%v\nstory: %s\nplan: %s\nagain: %s", r.Err(), story, plan, again(r.Plan.Seed))
	tries := int(number("TAILRACE_SIM_SHRINK", 60))
	if tries == 0 {
		return
	}
	small := r
	servers.Shrink(r.Plan, tries, func(p *servers.Plan) bool {
		s := play(t, p, patience)
		same := s.Err() != nil && s.Failures[0].Check == r.Failures[0].Check
		if same {
			small = s
		}
		return same
	})
	if small != r {
		story, plan := write(small, "-small")
		t.Errorf("smaller, %d faults and %d tasks: %v\nstory: %s\nplan: %s\nagain: TAILRACE_SIM_PLAN=%s %s", len(small.Plan.Faults), len(small.Plan.Tasks), small.Err(), story, plan, plan, again(r.Plan.Seed))
	}
}

// TestAgain runs the plan in the file TAILRACE_SIM_PLAN, as tell has written it.
func TestAgain(t *testing.T) {
	path := os.Getenv(envPlan)
	if path == "" || os.Getenv(envResult) != "" {
		return
	}
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	plan := new(servers.Plan)
	require.NoError(t, json.Unmarshal(b, plan))
	if r := play(t, plan, patience); r.Err() != nil {
		t.Errorf("%v\n\n%s", r.Err(), servers.Tell(r))
	}
}

func again(seed uint64) string {
	if seeded.On {
		return fmt.Sprintf("SEED=%d make sim-servers", seed)
	}
	return fmt.Sprintf("TAILRACE_SEED=%d go test -run TestServers ./internal/sim/servers", seed)
}
