package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep"
	"tailrace.dev/tailrace/nexmark/sweep/specs"
)

// The smoke sweep measures real cases and draws them; started again it has nothing left to do.
func TestSweepSmoke(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	code, stderr := nexmark(t, "sweep", "smoke", "--out", dir)
	require.Equal(t, 0, code, stderr)
	rows, _, err := sweep.ReadRows(filepath.Join(dir, "rows.jsonl"))
	require.NoError(t, err)
	text, _ := specs.Text("smoke")
	spec, err := sweep.Parse("smoke", text, known())
	require.NoError(t, err)
	steps := sweep.NewPlan(spec, false).Steps()
	require.Len(t, rows, len(steps))
	consumed, samples := 0.0, int64(0)
	for i, r := range rows {
		require.Equal(t, steps[i].Key(), r.Key)
		require.Empty(t, r.Failed)
		require.NotZero(t, r.Host.Cores)
		require.NotEmpty(t, r.Program.Commit)
		require.Equal(t, "embedded", r.Target)
		if r.Case.Check > 0 {
			require.True(t, r.Check.Right, r.Key)
			continue
		}
		require.Equal(t, r.Case.Protocol, r.Bench.Protocol)
		// On a busy machine a single case may consume nothing in so short a time.
		consumed += r.Bench.Achieved
		samples += min(r.Bench.Visible.Count, r.Bench.Emit.Count)
		require.Equal(t, r.Case.Kind == sweep.Timeline, len(r.Timeline) > 0, r.Key)
	}
	require.NotZero(t, consumed)
	require.NotZero(t, samples)
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), "<svg")
	require.FileExists(t, filepath.Join(dir, "plots", "latency-over-rate-visible-p50.svg"))

	before, err := os.ReadFile(filepath.Join(dir, "rows.jsonl"))
	require.NoError(t, err)
	code, stderr = nexmark(t, "sweep", "smoke", "--out", dir)
	require.Equal(t, 0, code, stderr)
	after, err := os.ReadFile(filepath.Join(dir, "rows.jsonl"))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	require.NoError(t, os.Remove(filepath.Join(dir, "report.html")))
	code, stderr = nexmark(t, "sweep", "report", dir)
	require.Equal(t, 0, code, stderr)
	again, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	require.Equal(t, string(page), string(again))

	code, stderr = nexmark(t, "sweep", "quick", "--out", dir)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "its spec differs from this one")
}

const killed = `
check: {events: 1000}
series:
  - {kind: latency-over-rate, queries: [1, 4], protocols: [fused, marker], rates: [2000, 4000], parallelism: 1, warmup: 100ms, duration: 400ms}
`

// A sweep is killed with SIGKILL repeatedly; started again it ends with each case measured once.
func TestSweepKilled(t *testing.T) {
	dir := t.TempDir()
	spec, out := filepath.Join(dir, "spec.yaml"), filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(spec, []byte(killed), 0o644))
	count := func() int {
		b, _ := os.ReadFile(filepath.Join(out, "rows.jsonl"))
		return bytes.Count(b, []byte("\n"))
	}
	for _, at := range []int{1, 5, 7} {
		cmd := program(t, "sweep", spec, "--out", out, "--quiet")
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return count() >= at }, time.Minute, 5*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
		_ = cmd.Wait() // killed
	}
	cmd := program(t, "sweep", spec, "--out", out, "--quiet", "--json")
	stdout, err := cmd.Output()
	require.NoError(t, err)
	rows, _, err := sweep.ReadRows(filepath.Join(out, "rows.jsonl"))
	require.NoError(t, err)
	require.Len(t, rows, 12)
	seen := map[string]bool{}
	for _, r := range rows {
		require.False(t, seen[r.Key], r.Key)
		seen[r.Key] = true
	}
	lines := strings.Split(strings.TrimSpace(string(stdout)), "\n")
	require.Contains(t, lines[len(lines)-1], `"failed":0`)
	require.True(t, json.Valid([]byte(lines[0])))
	require.NoDirExists(t, filepath.Join(out, "tmp"))
}

// No process of a killed or interrupted sweep continues: a case that would take minutes ends at
// once.
func TestSweepLeavesNothing(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
		dir := t.TempDir()
		spec, out := filepath.Join(dir, "spec.yaml"), filepath.Join(dir, "out")
		require.NoError(t, os.WriteFile(spec, []byte("check: off\nseries: [{kind: latency-over-rate, queries: 1, protocols: fused, rates: 1000, duration: 10m}]\n"), 0o644))
		cmd := program(t, "sweep", spec, "--out", out, "--quiet")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return len(measuring(t, out)) > 0 }, time.Minute, 5*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(sig))
		_ = cmd.Wait() // killed, or exit code 1
		require.Eventually(t, func() bool { return len(measuring(t, out)) == 0 }, 2*time.Minute, 20*time.Millisecond, "its child still runs")
		if sig != syscall.SIGKILL {
			require.Contains(t, stderr.String(), "interrupted; run the same command again to resume")
			require.NoDirExists(t, filepath.Join(out, "tmp"))
		}
		rows, _, err := sweep.ReadRows(filepath.Join(out, "rows.jsonl"))
		require.NoError(t, err)
		require.Empty(t, rows)
	}
}

// measuring returns the processes that measure for the sweep in a directory: their TMPDIR is in it.
func measuring(t *testing.T, out string) (pids []string) {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, path := range all {
		env, err := os.ReadFile(path)
		if err == nil && bytes.Contains(env, []byte("TMPDIR="+out+"/tmp")) {
			pids = append(pids, strings.Split(path, "/")[2])
		}
	}
	return pids
}

// A case that cannot be measured fails by itself; the sweep continues and exits with 1.
func TestSweepFailing(t *testing.T) {
	dir := t.TempDir()
	spec, out := filepath.Join(dir, "spec.yaml"), filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(spec, []byte(`
check: off
defaults: {queries: 1, protocols: fused, parallelism: 1, warmup: 0s, duration: 100ms}
series:
  - {kind: throughput, settings: {memory: 1MiB}}
  - {kind: throughput}
`), 0o644))
	code, stderr := nexmark(t, "sweep", spec, "--out", out)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "1 failed, 0 void: 1 throughput q1 fused max/s 100ms p1 r1 #1: exit status 2: nexmark: --memory 1MiB: at least 64MiB")
	rows, _, err := sweep.ReadRows(filepath.Join(out, "rows.jsonl"))
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Empty(t, rows[1].Failed)
}

// Invalid usage is reported before anything is measured.
func TestSweepUsage(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "spec.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	cluster := write("series: [{kind: throughput, queries: 1, replicas: 3}]\n")
	together := filepath.Join(dir, "together.yaml")
	require.NoError(t, os.WriteFile(together, []byte("series: [{kind: latency-over-rate, queries: 3, protocols: aligned, rates: 100}]\n"), 0o644))
	recovery := filepath.Join(dir, "recovery.yaml")
	require.NoError(t, os.WriteFile(recovery, []byte("series:\n  - {kind: recovery, queries: 8, rates: 100, fail-at: 1s}\n"), 0o644))
	for _, c := range []struct {
		want string
		args []string
	}{
		{"which spec?", nil},
		{"--out: where?", []string{"smoke"}},
		{"no such file or directory; give a YAML file, or one of meces-f1", []string{"smok", "--out", dir}},
		{"--submit: to which cluster?", []string{"smoke", "--out", dir, "--submit"}},
		{`--log: "here" is no address`, []string{"smoke", "--out", dir, "--log", "here"}},
		{"--cluster: with --log only", []string{"smoke", "--out", dir, "--cluster", "c"}},
		{"there is no program", []string{cluster, "--out", dir, "--tailrace", filepath.Join(dir, "no")}},
		{"line 2: a recovery series takes a task's memory", []string{recovery, "--out", dir, "--log", "127.0.0.1:1", "--submit"}},
		{"line 1: a throughput series cannot be submitted", []string{cluster, "--out", dir, "--log", "127.0.0.1:1", "--submit"}},
		{"line 1: protocol aligned keeps state in a checkpoint store", []string{together, "--out", dir, "--log", "127.0.0.1:1", "--submit"}},
		{"--overlay: stat nowhere", []string{"smoke", "--out", dir, "--overlay", "nowhere"}},
		{"no built-in spec", []string{"--list", "smok"}},
		{"holds no sweep", []string{"report", filepath.Join(dir, "none")}},
	} {
		code, stderr := nexmark(t, append([]string{"sweep"}, c.args...)...)
		require.Equal(t, 2, code, fmt.Sprint(c.args, stderr))
		require.Contains(t, stderr, c.want)
	}
	require.NoFileExists(t, filepath.Join(dir, "rows.jsonl"))
}

// What the built-in specs rescale can be rescaled so.
func TestBuiltinRescales(t *testing.T) {
	checked := 0
	for _, name := range specs.Names() {
		text, _ := specs.Text(name)
		spec, err := sweep.Parse(name, text, known())
		require.NoError(t, err)
		for _, step := range sweep.NewPlan(spec, false).Steps() {
			c := &step.Case
			var all rescales
			require.NoError(t, all.Set(cmp.Or(c.Settings["rescale"], "none")))
			if len(all) == 0 {
				continue
			}
			s := driver.Settings{
				Workload: c.Workload, Query: c.Query, Protocol: c.Protocol, Parallelism: c.Parallelism, Logged: c.Source == "log", Output: "-",
				Q7Window: time.Second, Rescales: all,
			}
			s.Groups, _ = strconv.Atoi(c.Settings["key-groups"])
			s.Partitions, _ = strconv.Atoi(c.Settings["partitions"])
			require.NoError(t, s.CheckRescales(), "%s: %s", name, step.Key())
			checked++
		}
	}
	require.Greater(t, checked, 50)
}
