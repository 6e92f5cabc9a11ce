package servers_test

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/sim/servers"
)

// Environment variables for a child process: what to run, and where to write the result.
const (
	envPlan   = "TAILRACE_SIM_PLAN"
	envResult = "TAILRACE_SIM_RESULT"
)

// TestPlay runs the plan of a file. All other tests run their plans in a child process with
// TestPlay, because a run that hangs or panics ends its process.
func TestPlay(t *testing.T) {
	path := os.Getenv(envPlan)
	if os.Getenv(envResult) == "" {
		return // only for the children of the other tests
	}
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	plan := new(servers.Plan)
	require.NoError(t, json.Unmarshal(b, plan))
	runtime.GOMAXPROCS(1)
	runtime.MemProfileRate = 0
	debug.SetGCPercent(-1) // the run collects when it is quiet
	debug.SetMemoryLimit(3 << 30)
	cryptotest.SetGlobalRandom(t, plan.Seed)
	var r *servers.Result
	write := func() {
		b, err := json.Marshal(r)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(os.Getenv(envResult), b, 0o644))
	}
	synctest.Test(t, func(*testing.T) {
		r = servers.Run(plan)
		write() // before leaked goroutines can end the process
	})
}

// A plan that is written to JSON and read again is the same.
func TestPlanIsData(t *testing.T) {
	for seed := range uint64(50) {
		plan := servers.NewPlan(seed, true, seed%2 == 0)
		b, err := json.Marshal(plan)
		require.NoError(t, err)
		again := new(servers.Plan)
		require.NoError(t, json.Unmarshal(b, again))
		require.Equal(t, fmt.Sprintf("%+v", plan), fmt.Sprintf("%+v", again))
		require.Equal(t, plan, servers.NewPlan(seed, true, seed%2 == 0))
	}
}

// A plan that fails because of one fault and one task is reduced to these, in few tries: Shrink
// removes halves before smaller parts.
func TestShrink(t *testing.T) {
	plan := servers.NewPlan(8, true, false)
	plan.Grow(5)
	require.Greater(t, len(plan.Faults), 5)
	require.Greater(t, len(plan.Tasks), 3)
	fault, task := plan.Faults[len(plan.Faults)/2], plan.Tasks[0] // a writer
	tries := 0
	small := servers.Shrink(plan, 300, func(p *servers.Plan) bool {
		tries++
		return slices.Contains(p.Faults, fault) && slices.ContainsFunc(p.Tasks, func(t servers.Task) bool { return t.ID == task.ID && t.Ops >= 3 })
	})
	require.Equal(t, []servers.Fault{fault}, small.Faults)
	require.Len(t, small.Tasks, 1)
	require.Less(t, small.Tasks[0].Ops, max(6, task.Ops))
	require.Less(t, tries, 100)
	require.Less(t, small.Length, plan.Length)
	t.Logf("%d faults and %d tasks, reduced in %d tries", len(plan.Faults), len(plan.Tasks), tries)
}
