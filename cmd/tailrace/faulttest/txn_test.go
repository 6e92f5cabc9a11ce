package faulttest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/tasks/tags"
)

// Under txn the storage nodes coordinate transactions. Each node is killed or stopped half-way:
// other nodes take over its tasks' transactions and complete what was prepared, and the answer is
// that of the embedded log.
func TestCoordinatorsKilled(t *testing.T) {
	dir := t.TempDir()
	c := proctest.Start(t, binaries, 3)
	log := c.Open()
	nodes := log.(interface{ Nodes() []string })
	want, got := filepath.Join(dir, "want"), filepath.Join(dir, "got")
	args := []string{"run", "--query", "5", "--events", "120000", "--seed", "5", "--quiet", "--parallelism", "2", "--key-groups", "8"}
	out, err := proctest.Command(t, binaries.Nexmark, append(args, "--output", want)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := proctest.Command(t, binaries.Nexmark, append(args, "--output", got, "--protocol", "txn", "--commit-interval", "10ms", "--rate", "20000",
		"--log", strings.Join(c.Sequencers, ","), "--cluster", "fault")...)
	var words strings.Builder
	run.Stderr = &words
	require.NoError(t, run.Start())
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()

	var job struct {
		ID string `json:"id"`
	}
	require.Eventually(t, func() bool {
		rec, err := log.Get(t.Context(), tags.JobKey("q5"))
		return err == nil && len(rec.Value) > 0 && json.Unmarshal(rec.Value, &job) == nil
	}, patience, 10*time.Millisecond)
	plan := stages(t, args)
	// who returns which node coordinates each task.
	who := func() (all []string) {
		for _, stage := range plan {
			for i := range 2 {
				c, err := log.Get(t.Context(), tags.CoordinatorKey(job.ID, stage, i))
				require.NoError(t, err)
				all = append(all, fmt.Sprintf("%x", c.Value))
			}
		}
		return all
	}
	progress := func() {
		tail, err := log.Tail(t.Context())
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			now, err := log.Tail(t.Context())
			return err == nil && now > tail+300 || len(ended) > 0
		}, patience, 5*time.Millisecond, "it hangs: %s", &words)
	}
	taken := 0
	for i := range c.Storage {
		victim := fmt.Sprint("storage", i)
		progress()
		before := who()
		if i == 0 { // it is unreachable, and comes back as a coordinator that does not know that it was replaced
			c.Signal(victim, syscall.SIGSTOP)
			progress()
			c.Signal(victim, syscall.SIGCONT)
		} else {
			c.Kill(victim)
			progress()
			c.Restart(victim)
		}
		progress()
		for k, now := range who() {
			if now != before[k] {
				taken++
			}
		}
		require.Eventually(t, func() bool { return len(nodes.Nodes()) == len(c.Storage) }, patience, 5*time.Millisecond)
	}
	select {
	case err := <-ended:
		require.NoError(t, err, "%s", &words)
		require.Fail(t, "the run was over before the last node was back")
	default:
	}
	require.NoError(t, <-ended, "%s", &words)
	require.NotZero(t, taken, "no transactions were taken over: nothing was tested")
	t.Logf("the transactions of %d tasks were taken over", taken)
	require.Equal(t, rows(t, 5, want), rows(t, 5, got))
}

// stages returns the names of a query's stages, from the arguments of its run.
func stages(t *testing.T, run []string) (names []string) {
	args := []string{"plan", "--output", "none"}
	for i := 1; i < len(run); i += 2 {
		if run[i] == "--quiet" {
			i--
			continue
		}
		args = append(args, run[i], run[i+1])
	}
	out, err := proctest.Command(t, binaries.Nexmark, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	var spec struct {
		Plan struct{ Stages []struct{ Name string } }
	}
	require.NoError(t, json.Unmarshal(out, &spec))
	for _, s := range spec.Plan.Stages {
		names = append(names, s.Name)
	}
	require.NotEmpty(t, names)
	return names
}
