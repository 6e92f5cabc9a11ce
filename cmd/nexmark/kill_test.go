package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/oracle"
)

// The tests of this file run the program itself, as processes: asProgram tells the test binary to
// act as the program. Its children (of sweep) must be the program too. The variable has no prefix
// of the program's settings, because sweep removes those from its children's environment.
const asProgram = "TEST_AS_NEXMARK"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0) // main returns when all is well
	}
	if s := os.Getenv(asVictim); s != "" {
		os.Exit(beVictim(s))
	}
	// Tests that run in parallel wait mostly for their input, which arrives at a fixed rate, and
	// not for a processor.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err) // invariant: every test binary has this flag
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) *exec.Cmd {
	cmd := proctest.Command(t, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// nexmark runs the program to its end and returns its exit code and standard error.
func nexmark(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	cmd := program(t, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), errs.String()
	}
	require.NoError(t, err)
	return 0, errs.String()
}

// writeInput writes generated events into the requested number of files, and returns the oracle's
// input.
func writeInput(t *testing.T, dir string, events int64, files int, disorder time.Duration) ([]string, *oracle.Input) {
	t.Helper()
	g, err := generator.New(generator.Config{Seed: 11, Events: events, Rate: 5000, Base: generator.DefaultBase, Disorder: disorder})
	require.NoError(t, err)
	in := &oracle.Input{}
	text := make([][]byte, files)
	for k := range events {
		raw := g.Append(nil, k)
		require.NoError(t, in.Add(raw))
		f := int(k) / 7 % files
		text[f], err = event.AppendJSON(text[f], raw)
		require.NoError(t, err)
	}
	var paths []string
	for i, b := range text {
		path := filepath.Join(dir, fmt.Sprintf("in%d.jsonl", i))
		require.NoError(t, os.WriteFile(path, b, 0o644))
		paths = append(paths, path)
	}
	return paths, in
}

// answer reads an output in the form in which it is compared: sorted, for queries 4 and 6 the last
// row of each key.
func answer(t *testing.T, query int, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	rows := strings.SplitAfter(string(b), "\n")
	require.Empty(t, rows[len(rows)-1], "the last line is not complete")
	rows = rows[:len(rows)-1]
	if query == 4 || query == 6 {
		last := map[string]string{}
		for _, r := range rows {
			key, _, _ := strings.Cut(r, ",")
			last[key] = r
		}
		rows = rows[:0]
		for _, r := range last {
			rows = append(rows, r)
		}
	}
	slices.Sort(rows)
	return rows
}

func sameAnswer(t *testing.T, query int, in *oracle.Input, file string) {
	t.Helper()
	want, err := oracle.Answer(query, in, oracle.Options{})
	require.NoError(t, err)
	got := answer(t, query, file)
	if slices.Equal(want, got) {
		return
	}
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Fatalf("query %d: %d rows, %d expected; the first that differs: %q, expected %q", query, len(got), len(want), got[i], want[i])
		}
	}
	t.Fatalf("query %d: %d rows, %d expected", query, len(got), len(want))
}

// Each query, under each exactly-once protocol, is killed with SIGKILL at random moments and
// started again with the same arguments until it ends: the rows are the oracle's. Queries with
// windows, joins and timers run also with state on disk, most of which does not fit in memory. A run
// takes a third of these (proctest.Drawn).
func TestKilled(t *testing.T) {
	events, kills := int64(40_000), 4
	if os.Getenv("TAILRACE_SOAK") != "" {
		events, kills = 2_000_000, 10
	}
	dir := t.TempDir()
	inputs, in := writeInput(t, dir, events, 2, 2*time.Second)
	for query := 1; query <= 8; query++ {
		for i, how := range []string{"fused", "marker", "txn", "aligned", "fused --state pebble --state-memory 1MiB"} {
			how := strings.Fields(how)
			if len(how) > 1 && query < 3 {
				continue // it has no state
			}
			name := fmt.Sprintf("q%d/%s", query, strings.Join(how[:min(3, len(how))], ""))
			if !proctest.Drawn(t.Name()+": "+name, query+i, 3) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(query), 17))
				dir := t.TempDir()
				out := filepath.Join(dir, "out.jsonl")
				args := []string{
					"run", "--query", fmt.Sprint(query), "--input", inputs[0], "--input", inputs[1],
					"--protocol", how[0], "--watermark-delay", "3s",
					"--commit-interval", "5ms", "--parallelism", "2", "--quiet",
				}
				args = append(args, how[1:]...)
				killedUntilDone(t, rng, kills, dir, out, args)
				sameAnswer(t, query, in, out)
			})
		}
	}
}

// killedUntilDone runs the program, whose data are in dir and whose rows are in the file out, kills it
// at random moments, at most kills times, and runs it again until it ends; and once more after that.
func killedUntilDone(t *testing.T, rng *rand.Rand, kills int, dir, out string, args []string) {
	t.Helper()
	data := filepath.Join(dir, "data")
	args = append(args, "--data", data, "--output", out)
	// Measure how long an undisturbed run takes, to kill the process within that time.
	begun := time.Now()
	probe := slices.Clone(args)
	probe[slices.Index(probe, data)] = filepath.Join(dir, "probe")
	code, stderr := nexmark(t, probe...)
	require.Zero(t, code, stderr)
	whole := time.Since(begun)
	require.NoError(t, os.RemoveAll(out))

	killed := 0
	for done := false; !done; {
		cmd := program(t, args...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		require.NoError(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		var after <-chan time.Time
		if killed < kills {
			// Short lives at first, so that there are many.
			after = time.After(whole/20 + time.Duration(rng.Int64N(int64(whole)*3/int64(2*kills))))
		}
		stopped := false
		var err error
		select {
		case <-after:
			kill := cmd.Process.Signal(syscall.SIGKILL)
			if stopped = kill == nil; !stopped {
				require.ErrorIs(t, kill, os.ErrProcessDone) // it just ended by itself
			}
			err = <-ended
		case err = <-ended:
		}
		if stopped {
			killed++
			continue
		}
		require.NoError(t, err, errs.String())
		done = killed > 0 // the machine's speed decides how many kills come before the end
		if !done {        // the machine was slow in the undisturbed run: start over, with earlier kills
			whole /= 2
			require.Greater(t, whole, time.Millisecond)
			require.NoError(t, errors.Join(os.Remove(out), os.RemoveAll(data)))
		}
	}
	t.Logf("killed %d times in runs of %v", killed, whole)

	before, err := os.ReadFile(out)
	require.NoError(t, err)
	code, stderr = nexmark(t, args...)
	require.Zero(t, code, stderr)
	now, err := os.ReadFile(out)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, now), "run again after its end, it changed the file")
}
