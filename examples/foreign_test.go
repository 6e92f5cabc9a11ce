package examples_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A module of its own (examples/foreign), which sees of this one what any other module does, builds
// and passes its tests without a network. Its job gives the same rows in one process that is killed
// with SIGKILL, as a cluster's, fed by a program that appends to the cluster's log: each row once.
func TestForeignModule(t *testing.T) {
	dir := t.TempDir()
	command := func(stdin, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		// What is missing in its go.sum must not be fetched.
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOFLAGS=-mod=readonly -buildvcs=false "+os.Getenv("GOFLAGS"), "PATH="+dir+":"+os.Getenv("PATH"))
		cmd.Stdin = strings.NewReader(stdin)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		require.NoError(t, err, "%s %q: %s%s", name, args, out, errs.String())
		return string(out)
	}
	command("", "go", "build", "-C", "foreign", "-ldflags=-w", "-o", dir, "./...")
	command("", "go", "test", "-C", "foreign", "./...")
	command("", "go", "build", "-ldflags=-w", "-o", dir, "../cmd/tailrace")

	rng := rand.New(rand.NewPCG(1, 6))
	var input strings.Builder
	counts := map[string]int{}
	for at := int64(0); at < 10*60_000; at += rng.Int64N(100) {
		user := fmt.Sprint("user-", rng.IntN(40))
		fmt.Fprintf(&input, `{"at":%d,"user":%q}`+"\n", at, user)
		counts[fmt.Sprint(time.UnixMilli(at).UTC().Truncate(time.Minute).Format(time.RFC3339), " ", user)]++
	}
	var want []string
	for of, n := range counts {
		want = append(want, fmt.Sprint(of, " ", n))
	}
	slices.Sort(want)
	rows := func(text string) (all []string) {
		for line := range strings.Lines(text) {
			var row struct {
				User, Minute string
				Visits       int
			}
			require.NoError(t, json.Unmarshal([]byte(line), &row), line)
			all = append(all, fmt.Sprint(row.Minute, " ", row.User, " ", row.Visits))
		}
		slices.Sort(all)
		return all
	}

	file, data := filepath.Join(dir, "visits.jsonl"), filepath.Join(dir, "data")
	require.NoError(t, os.WriteFile(file, []byte(input.String()), 0o644))
	run := []string{"run", "--data", data, "--input", file, "--to-tag", "minutes", "--commit-interval", "2ms"}
	probe := slices.Clone(run)
	probe[2] = filepath.Join(dir, "probe")
	killedRun(t, 1, filepath.Join(dir, "visits"), run, probe, func() error { return os.RemoveAll(data) })
	require.Equal(t, want, rows(command("", filepath.Join(dir, "visits"), "read", "--data", data, "--to-tag", "minutes")), "in one process")

	got := command(input.String(), filepath.Join(dir, "tailrace"), "up", "--sequencers", "1", "--storage", "1", "--managers", "1", "--workers", "1", "--worker", "visits worker", "--checkpoints", "none",
		"--", "sh", "-ec", `feed "$TAILRACE_LOG" visits >&2; visits submit --wait --to-tag minutes --parallelism 2; visits read --to-tag minutes`)
	require.Equal(t, want, rows(got), "on a cluster")
}
