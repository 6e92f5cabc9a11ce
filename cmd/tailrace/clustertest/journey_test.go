package clustertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/workload"
)

// underWay matches a line that the sweep prints when a case is done, or all are.
var underWay = regexp.MustCompile(`^sweep: (\d+ of |done)`)

const rehearsal = scripts + "rehearsal.yaml"

// From nothing to a report and back to nothing. Each step can be repeated.
func TestJourney(t *testing.T) {
	w := newNetworks(t)
	for _, step := range []string{"check", "build", "upload", "start", "ready"} {
		w.must(step)
	}
	pids := w.pids()
	require.Len(t, pids, 13+3, "roles, and a safety stop a host")
	w.must("start")
	again := w.pids()
	for unit, pid := range pids {
		if !strings.HasSuffix(unit, "safety-stop") {
			require.Equal(t, pid, again[unit], "%s was started a second time", unit)
		}
	}
	for _, host := range []string{"host-1", "host-2", "host-3"} {
		info, err := os.Stat(filepath.Join(w.dir, host, "tls/key.pem"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
	}
	text := w.must("all", "--spec", rehearsal)
	require.Contains(t, text, "stop: nothing runs any more")
	w.nothingRuns()
	w.collected(3)
	w.must("clean")
	w.nothingIsLeft()
}

// The same where systemd runs the roles, with the units that terraform installs on its hosts. The
// test needs root, because each host has a systemd of its own.
func TestJourneyWithSystemd(t *testing.T) {
	soak(t)
	w := newApart(t, "systemd")
	w.must("all", "--spec", rehearsal)
	w.nothingRuns()
	w.collected(3)
	w.must("clean")
	w.nothingIsLeft()
}

// pids returns the process ids of the units, by host/unit.
func (w *world) pids() map[string]string {
	all := map[string]string{}
	files, err := filepath.Glob(w.dir + "/host-*/run/*.pid")
	require.NoError(w.t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(w.t, err)
		all[strings.TrimSuffix(strings.TrimPrefix(f, w.dir+"/"), ".pid")] = string(b)
	}
	return all
}

// collected checks that the report of the rehearsal was fetched, with a row for each case, and the
// logs of all hosts.
func (w *world) collected(hosts int) {
	w.t.Helper()
	dir := filepath.Join(w.state, "results/rehearsal")
	rows, err := os.ReadFile(filepath.Join(dir, "rows.jsonl"))
	require.NoError(w.t, err)
	for _, q := range []string{`"query":1`, `"query":5`, `"protocol":"fused"`, `"protocol":"marker"`} {
		require.Contains(w.t, string(rows), q)
	}
	require.FileExists(w.t, filepath.Join(dir, "report.html"))
	plots, err := filepath.Glob(filepath.Join(dir, "plots/*.svg"))
	require.NoError(w.t, err)
	require.NotEmpty(w.t, plots)
	logs, err := filepath.Glob(filepath.Join(w.state, "logs/*/storage-*.log"))
	require.NoError(w.t, err)
	require.Len(w.t, logs, hosts)
}

// The script is killed at one point after the other and started again each time: the result is the
// same, and nothing is started twice.
func TestKilledHalfWay(t *testing.T) {
	soak(t)
	w := newWorld(t)
	exists := func(pattern string) func(string) bool {
		return func(string) bool {
			found, _ := filepath.Glob(filepath.Join(w.dir, pattern))
			return len(found) > 0
		}
	}
	says := func(prefix string) func(string) bool {
		return func(line string) bool { return strings.HasPrefix(line, prefix) }
	}
	for i, point := range []struct {
		name string
		is   func(line string) bool
	}{
		{"nothing done yet", says("check:")},
		{"programs half there", exists("host-*/bin.new/*")},
		{"programs there", says("upload:")},
		{"first role started", exists("host-*/run/*-*.pid")},
		{"all started", says("start:")},
		{"ready", says("ready: all")},
		{"sweep started", says("sweep: rehearsal runs")},
		{"sweep under way", underWay.MatchString},
		{"results there", says("collect: /")},
	} {
		group := i%2 == 0
		lines := make(chan string, 1000)
		s := w.begin(func(line string) { lines <- line }, "all", "--spec", rehearsal)
		tick := time.NewTicker(5 * time.Millisecond)
		for line, met := "", false; !met; met = point.is(line) {
			select {
			case line = <-lines:
			case <-tick.C:
				line = ""
			case <-s.done:
				t.Fatalf("%s: it ended before: %s", point.name, s.text.String())
			}
		}
		tick.Stop()
		pid := s.cmd.Process.Pid
		if group {
			pid = -pid
		}
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL), point.name)
		s.wait()
		t.Logf("killed: %s (%d processes on the hosts)", point.name, len(w.processes()))
	}
	w.must("all", "--spec", rehearsal)
	w.nothingRuns()
	w.collected(3)
	w.must("clean")
	w.nothingIsLeft()
}

// longer is the rehearsal with cases of some seconds, so that faults can happen meanwhile.
func (w *world) longer() string {
	text, err := os.ReadFile(rehearsal)
	require.NoError(w.t, err)
	changed := strings.Replace(string(text), "duration: 1s", "duration: 5s", 1)
	require.NotEqual(w.t, string(text), changed)
	path := filepath.Join(w.t.TempDir(), "rehearsal.yaml")
	require.NoError(w.t, os.WriteFile(path, []byte(changed), 0o600))
	return path
}

// A host that dies during the sweep is noticed and named, the run is marked, and nothing keeps
// running; with the host back the same command completes the sweep.
func TestHostDies(t *testing.T) {
	soak(t)
	w := newWorld(t)
	kill := func() func(string) {
		once := false
		return func(line string) {
			if !once && strings.HasPrefix(line, "sweep: rehearsal runs") {
				once = true
				w.local("kill", "host-3")
			}
		}
	}
	text, code := w.begin(kill(), "all", "--spec", w.longer()).wait()
	require.Equal(t, 1, code, text)
	require.Regexp(t, `error: \S+ \(sequencer-3, storage-3, compute-3\), host, was lost during the sweep: ssh .* connection refused`, text)
	require.Contains(t, text, "Bring the host back and run it again")
	marks, err := os.ReadFile(filepath.Join(w.state, "marks.jsonl"))
	require.NoError(t, err)
	require.Regexp(t, regexp.MustCompile(`^\{"time":"[^"]+Z","host":"[^"]+","runs":"sequencer-3, storage-3, compute-3","rows":\d+,"what":"host","why":"[^"]+"\}\n$`), string(marks))
	w.nothingRuns()

	w.local("boot", "host-3")
	text = w.must("all", "--spec", w.longer())
	require.Contains(t, text, "hosts were lost during this sweep")
	w.nothingRuns()
	w.collected(3)
	require.FileExists(t, filepath.Join(w.state, "results/rehearsal/marks.jsonl"))
}

// With `--on-host-loss go-on` the sweep completes without the host.
func TestContinuesWithoutAHost(t *testing.T) {
	soak(t)
	w := newWorld(t)
	killed := false
	text, code := w.begin(func(line string) {
		if !killed && underWay.MatchString(line) {
			killed = true
			w.local("kill", "host-3")
		}
	}, "all", "--spec", w.longer(), "--on-host-loss", "go-on").wait()
	require.Equal(t, 1, code, "the host that is lost could not be told to stop: %s", text)
	require.Contains(t, text, "continues without it")
	require.Contains(t, text, "collect: "+w.state)
	require.Contains(t, text, "not all hosts could be told to stop")
	marks, err := os.ReadFile(filepath.Join(w.state, "results/rehearsal/marks.jsonl"))
	require.NoError(t, err)
	require.Regexp(t, `"rows":\d+,"what":"host","why":"[^"]+"\}\n$`, string(marks))
	rows, err := os.ReadFile(filepath.Join(w.state, "results/rehearsal/rows.jsonl"))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(rows)), "\n")
	require.NotContains(t, lines[0], `"marked"`)
	require.Contains(t, lines[len(lines)-1], `"marked"`)
	w.nothingRuns()
	w.collected(2)
}

// A role that ends during the sweep counts as a loss of its host.
func TestRoleDies(t *testing.T) {
	soak(t)
	w := newWorld(t)
	killed := false
	text, code := w.begin(func(line string) {
		if !killed && strings.HasPrefix(line, "sweep: rehearsal runs") {
			killed = true
			pid, _, _ := strings.Cut(w.pids()["host-2/run/storage-2"], " ")
			out, err := exec.Command("kill", "-KILL", pid).CombinedOutput()
			if err != nil {
				t.Errorf("kill %s: %v: %s", pid, err, out)
			}
		}
	}, "all", "--spec", w.longer()).wait()
	require.Equal(t, 1, code, text)
	require.Contains(t, text, "process storage-2, was lost during the sweep")
	w.nothingRuns()
}

// When the time limit passes, the hosts end everything by themselves.
func TestSafetyStop(t *testing.T) {
	soak(t)
	w := newWorld(t)
	w.must("build")
	w.must("upload")
	w.must("start", "--max-hours", "0.006")
	w.must("ready")
	require.NotEmpty(t, w.processes())
	require.Eventually(t, func() bool { return len(w.processes()) == 0 }, 3*time.Minute, 100*time.Millisecond)
	require.Empty(t, w.listening())
}

// The stages that run on compute hosts are all stages but the sources.
func TestStages(t *testing.T) {
	text, err := os.ReadFile(scripts + "hosts.sh")
	require.NoError(t, err)
	listed := func(name string) []string {
		found := regexp.MustCompile(`(?m)^` + name + `=(\S+)$`).FindSubmatch(text)
		require.NotNil(t, found, name)
		return slices.Sorted(slices.Values(strings.Split(string(found[1]), ",")))
	}
	stages := map[string]bool{}
	for _, w := range workload.All() {
		s := driver.Settings{
			Workload: w.Name, Output: "rows", Q7Window: 10 * time.Second, Partitions: 1, Protocol: "fused", Groups: 64, CommitInterval: time.Second,
			Generator: generator.Config{Events: 1, Rate: 1}, SnapshotInterval: time.Second,
		}
		for _, logged := range []bool{false, true} {
			s.Logged = logged
			spec, err := driver.Describe(s)
			require.NoError(t, err)
			for _, stage := range spec.Plan.Stages {
				stages[stage.Name] = true
			}
		}
	}
	var all []string
	for name := range stages {
		all = append(all, name)
	}
	slices.Sort(all)
	require.Equal(t, all, slices.Sorted(slices.Values(append(listed("compute_stages"), listed("input_stages")...))))
}
