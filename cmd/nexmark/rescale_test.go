package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/oracle"
	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/state"
)

// shapes are the rescales that TestRescaledAnswers makes, of a stage with eight key groups.
var shapes = []struct {
	name  string
	begin int   // tasks of the stage at first
	to    []int // and then
}{
	{"out", 2, []int{4}},
	{"in", 4, []int{2}},
	{"to one", 3, []int{1}},
	{"to all key groups", 2, []int{8}},
	{"out in out", 2, []int{5, 2, 6}},
}

// The answers of all queries and workloads are the oracle's if a stage is rescaled at random
// moments: out, in, to one task, to one for each key group, and back and forth. TAILRACE_SEEDS=N
// does so for N seeds, TAILRACE_SEED=S for the seed S (make rescaled-answers).
func TestRescaledAnswers(t *testing.T) {
	first, seeds := uint64(1), uint64(1)
	if v := cmp.Or(os.Getenv("TAILRACE_SEED"), os.Getenv("TAILRACE_SEEDS")); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		require.NoError(t, err)
		if seeds = n; os.Getenv("TAILRACE_SEED") != "" {
			first, seeds = n, 1
		}
	}
	for seed := first; seed < first+seeds; seed++ {
		var asked, done atomic.Int64
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			config := generator.Config{Seed: seed, Events: 8_000, Rate: 400, Base: generator.DefaultBase, Disorder: 2 * time.Second}
			g, err := generator.New(config)
			require.NoError(t, err)
			in := &oracle.Input{}
			for k := range config.Events {
				require.NoError(t, in.Add(g.Append(nil, k)))
			}
			for _, w := range workload.All() {
				for p, protocol := range []string{"fused", "marker"} {
					for i, shape := range shapes {
						if w.Delay != nil && seeds == 1 && (p+i)%3 != 0 {
							continue // the others are for the night
						}
						t.Run(fmt.Sprintf("%s/%s/%s", w.Name, protocol, shape.name), func(t *testing.T) {
							t.Parallel()
							rng := rand.New(rand.NewPCG(seed, uint64(len(w.Name)+100*w.Query+10*p+i)))
							s := rescaledSettings(t, rng, w, config)
							s.Protocol, s.Parallelism = protocol, shape.begin
							s.Rescales = rescalesOf(t, rng, &s, shape.to)
							for k, r := range runRescaled(t, s) {
								asked.Add(1)
								if r.NotDone == "" {
									require.Equal(t, shape.to[k], r.To)
									require.Equal(t, 8, r.KeyGroups)
									done.Add(1)
								}
							}
							if w.Query > 0 {
								sameAnswer(t, w.Query, in, s.Output)
								return
							}
							want, err := w.Right(&workload.Params{Own: s.Own}, config)
							require.NoError(t, err)
							require.NotEmpty(t, want)
							sameRows(t, w, want, s.Output)
						})
					}
				}
			}
		})
		t.Logf("seed %d: %d of %d rescales were done", seed, done.Load(), asked.Load())
		if !t.Failed() {
			require.Greater(t, 4*done.Load(), asked.Load(), "most jobs ended before their rescales: the test shows nothing")
		}
	}
}

// rescaledSettings returns the settings of a run that lasts a fifth of a second. The stream of the
// events has as many key groups as they have partitions.
func rescaledSettings(t *testing.T, rng *rand.Rand, w *workload.Workload, config generator.Config) driver.Settings {
	s := driver.Settings{
		Workload: w.Name, Query: w.Query, Generator: config, Partitions: 8, Rate: 5 * config.Events, Output: filepath.Join(t.TempDir(), "out"),
		WatermarkDelay: 3 * time.Second, Q7Window: 10 * time.Second, Groups: 8,
		Logged:         w.Query == 1 || w.Query == 2 || rng.IntN(3) == 0, // queries 1 and 2 have no other stage
		CommitInterval: []time.Duration{time.Millisecond, 10 * time.Millisecond}[rng.IntN(2)],
		Checkpoints:    storetest.NewMem(), SnapshotInterval: []time.Duration{5 * time.Millisecond, time.Minute}[rng.IntN(2)],
	}
	if rng.IntN(3) == 0 {
		store, err := state.OpenPebble(filepath.Join(t.TempDir(), "state"), 1<<20)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		s.State = store
	}
	if w.Name == "count" {
		s.Own = map[string]string{"keys": "1000"}
	}
	if w.Delay != nil {
		i := slices.IndexFunc(keyed, func(k keyedRun) bool { return k.name == w.Name })
		s.Own = keyed[i].own
		s.WatermarkDelay = w.Delay(&workload.Params{Own: s.Own}, config)
	}
	return s
}

// rescalesOf returns rescales of one of the job's stages at random moments.
func rescalesOf(t *testing.T, rng *rand.Rand, s *driver.Settings, to []int) (all []driver.Rescale) {
	plan, err := driver.Rows(*s)
	require.NoError(t, err)
	var can []string
	for _, st := range plan.Stages {
		if !st.Sink && st.Partitions != 1 {
			can = append(can, st.Name)
		}
	}
	require.NotEmpty(t, can)
	stage := can[rng.IntN(len(can))]
	source := slices.ContainsFunc(plan.Stages, func(st exec.StageSpec) bool { return st.Name == stage && st.Partitions > 0 })
	var moments []uint64
	for range to {
		moments = append(moments, 1+rng.Uint64N(uint64(s.Generator.Events)*2/3))
	}
	slices.Sort(moments)
	for i, n := range to {
		mode := rescale.Modes[rng.IntN(len(rescale.Modes))]
		if source && mode.Restarts { // refused
			mode = rescale.Modes[0]
		}
		all = append(all, driver.Rescale{Events: moments[i], Stage: stage, Tasks: n, Batch: rng.IntN(3), Mode: mode.Name})
	}
	return all
}

func runRescaled(t *testing.T, s driver.Settings) []driver.Rescaled {
	log, err := embedded.Open(filepath.Join(t.TempDir(), "log"), embedded.Options{
		SegmentBytes: 1 << 20, CacheBytes: 1 << 20, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(t, err)
	require.NoError(t, s.CheckRescales())
	sum, err := driver.Run(t.Context(), log, s, nil)
	require.NoError(t, err)
	require.NoError(t, log.Close())
	require.Zero(t, sum.Late)
	require.Len(t, sum.Rescaled, len(s.Rescales))
	return sum.Rescaled
}

func TestParseAuto(t *testing.T) {
	var a autos
	require.NoError(t, a.Set("counts=2..8, best=1..1"))
	require.NoError(t, a.Set("3..4"))
	require.NoError(t, a.Set("keys=off"))
	require.Equal(t, autos{{Stage: "counts", Min: 2, Max: 8}, {Stage: "best", Min: 1, Max: 1}, {Min: 3, Max: 4}, {Stage: "keys"}}, a)
	var again autos
	require.NoError(t, again.Set(a.String()), "as a measurement of several trials passes it on")
	require.Equal(t, a, again)
	const write = "write the least and the largest number of tasks, as in 2..8, or off"
	for text, want := range map[string]string{
		"":                `"": ` + write,
		"counts=4":        `"counts=4": ` + write,
		"counts=0..4":     `"counts=0..4": ` + write,
		"counts=4..2":     `"counts=4..2": ` + write,
		"counts=1..x":     `"counts=1..x": ` + write,
		"=1..2":           `"=1..2": no stage before the =; write 1..2 for the stage with the most key groups`,
		"a=1..2,a=off":    `"a=off": the stage is named before`,
		"1..2, 2..3":      `" 2..3": the stage is named before`,
		"counts=2..8,off": "",
	} {
		err := new(autos).Set(text)
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.EqualError(t, err, want)
	}
}

func TestParseSurge(t *testing.T) {
	var s surge
	require.Empty(t, s.String())
	require.NoError(t, s.Set("20s:30s=60000"))
	require.Equal(t, surge{At: 20 * time.Second, For: 30 * time.Second, Rate: 60_000}, s)
	require.Equal(t, "20s:30s=60000", s.String())
	for _, text := range []string{"", "20s", "20s:30s", "20s=5", "x:30s=5", "20s:0s=5", "20s:30s=x"} {
		require.ErrorContains(t, new(surge).Set(text), "write WHEN:LONG=RATE, as in 20s:30s=60000", text)
	}
}

// A run with --auto gives the stage a number of tasks within the bounds, which are kept with the job:
// the next run of it needs no --auto. The rows are those of an undisturbed run.
func TestAuto(t *testing.T) {
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "json")
	run := func(out string, more ...string) (stderr string, all []tasks.Autoscaled) {
		args := append([]string{
			"run", "--query", "5", "--events", "40000", "--parallelism", "2", "--key-groups", "8", "--commit-interval", "5ms", "--output", filepath.Join(dir, out), "--json", file,
		}, more...)
		code, stderr := nexmark(t, args...)
		require.Equal(t, 0, code, stderr)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var sum struct {
			Autoscale []tasks.Autoscaled `json:"autoscale"`
		}
		require.NoError(t, json.Unmarshal(text, &sum), string(text))
		return stderr, sum.Autoscale
	}
	_, all := run("want")
	require.Empty(t, all)
	stderr, all := run("out", "--data", data, "--rate", "8000", "--auto", "3..3")
	require.Contains(t, stderr, "autoscale counts: 2 → 3 tasks (at least 3 tasks are wanted), 2 of 8 key groups moved, ")
	require.Len(t, all, 1)
	require.Equal(t, tasks.Autoscale{Stage: "counts", Min: 3, Max: 3}, all[0].Request)
	require.Equal(t, []int{1, 3}, []int{all[0].Count, all[0].Tasks})
	sorted := func(name string) []string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return slices.Sorted(strings.Lines(string(b)))
	}
	require.Equal(t, sorted("want"), sorted("out"))
	_, all = run("out", "--data", data)
	require.Len(t, all, 1)
	require.Equal(t, 3, all[0].Min)
}

func TestParseRescales(t *testing.T) {
	var r rescales
	require.NoError(t, r.Set("10s:counts=4, 10s=2,500000:best=1"))
	require.NoError(t, r.Set("1m=8"))
	require.Equal(t, rescales{
		{After: 10 * time.Second, Stage: "counts", Tasks: 4},
		{After: 10 * time.Second, Tasks: 2},
		{Events: 500_000, Stage: "best", Tasks: 1},
		{After: time.Minute, Tasks: 8},
	}, r)
	var again rescales
	require.NoError(t, again.Set(r.String()), "as a measurement of several trials passes it on")
	require.Equal(t, r, again)

	for text, want := range map[string]string{
		"":              `rescale 1, "": it has no =TASKS; write WHEN:STAGE=TASKS, as in 10s:counts=4`,
		"1s=2,2s:keys":  `rescale 2, "2s:keys": it has no =TASKS; write WHEN:STAGE=TASKS, as in 10s:counts=4`,
		"1s=0":          `rescale 1, "1s=0": "0" tasks: use a whole number, at least 1`,
		"1s=4x":         `rescale 1, "1s=4x": "4x" tasks: use a whole number, at least 1`,
		"1s:=4":         `rescale 1, "1s:=4": no stage behind the colon; write 1s=4 for the stage with the most key groups`,
		"soon:keys=4":   `rescale 1, "soon:keys=4": when is "soon"? use a time since the start, as 10s or 500ms, or a number of events`,
		"-1s:keys=4":    `rescale 1, "-1s:keys=4": when is "-1s"? use a time since the start, as 10s or 500ms, or a number of events`,
		"2s=4,1s=2":     `rescale 2, "1s=2": 1s is before 2s: list them in the order of their times`,
		"1s:a=2,1s:b=3": "",
	} {
		err := new(rescales).Set(text)
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.EqualError(t, err, want)
	}
}

// A rescale that is impossible is refused with a remedy, as bad usage, before the job is in the log.
func TestRescaleRefused(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"--query 5 --rescale 1s:rows=2", "stage rows cannot be rescaled: it is a sink; rescale a stage before it"},
		{"--query 5 --rescale 1s:events=9", "stage events reads "},
		{"--query 5 --rescale 1s=9", "stage counts has 8 key groups: at most 8"},
		{"--query 5 --rescale 1s:keys=2", `q5 has no stage "keys"; those that can be rescaled are: counts, best`},
		{"--query 1 --rescale 1s=2", "q1 has no stage between its source and its sink that could be rescaled (with the events in a stream of the log, --source log, it has)"},
		{"--query 5 --protocol txn --rescale 1s=2", "protocol txn cannot be rescaled: a commit record names partitions by owner; use fused or marker"},
		{"--query 5 --protocol aligned --rescale 1s=2", "protocol aligned cannot be rescaled: it keeps no change log"},
		{"--query 5 --protocol unsafe --rescale 1s=2", "protocol unsafe cannot be rescaled: it keeps no change log"},
		{"--query 5 --log 127.0.0.1:1 --submit --rescale 1s=2", "workers run it with --submit; leave out one of the two"},
		{"--query 5 --auto rows=1..2", "stage rows cannot be rescaled: it is a sink; rescale a stage before it"},
		{"--query 5 --auto events=1..2", "stage events cannot be rescaled by a policy: it reads a source, whose partitions move only on request; choose a stage behind it"},
		{"--query 5 --auto 1..9", "stage counts has 8 key groups: at most 8"},
		{"--query 5 --auto keys=1..2", `q5 has no stage "keys"; those that can be rescaled are: counts, best`},
		{"--query 5 --protocol txn --auto 1..2", "protocol txn cannot be rescaled: a commit record names partitions by owner; use fused or marker"},
		{"--query 5 --protocol aligned --auto 1..2", "protocol aligned cannot be rescaled: it keeps no change log"},
		{"--query 5 --log 127.0.0.1:1 --submit --auto 1..2", "workers run it with --submit; leave out one of the two"},
	} {
		data, out := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "out")
		args := append([]string{"run", "--key-groups", "8", "--events", "1000", "--output", out}, strings.Fields(c.args)...)
		if !strings.Contains(c.args, "--log") {
			args = append(args, "--data", data)
		}
		code, stderr := nexmark(t, args...)
		require.Equal(t, 2, code, stderr)
		flag := "--rescale: "
		if strings.Contains(c.args, "--auto") {
			flag = "--auto: "
		}
		require.Contains(t, stderr, flag)
		require.Contains(t, stderr, c.want)
		require.NoDirExists(t, data)
		require.NoFileExists(t, out)
	}
	code, stderr := nexmark(t, "bench", "--query", "5", "--protocol", "txn", "--rescale", "1s=2")
	require.Equal(t, 2, code, stderr)
	require.Contains(t, stderr, "--rescale: protocol txn cannot be rescaled")
}

// run and bench report each rescale on standard error and in their JSON, also one that comes too
// late, which is no error. The stage that is left out is the first with the most key groups.
func TestRescaleReported(t *testing.T) {
	reported := func(text []byte) []driver.Rescaled {
		var sum struct {
			Rescale []driver.Rescaled `json:"rescale"`
		}
		require.NoError(t, json.Unmarshal(text, &sum), string(text))
		return sum.Rescale
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "json")
	code, stderr := nexmark(t, "run", "--query", "5", "--events", "80000", "--rate", "40000", "--parallelism", "2", "--key-groups", "8", "--commit-interval", "5ms",
		"--output", filepath.Join(dir, "out"), "--json", file, "--rescale", "1000=4,1h:best=1")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stderr, "rescale 1000:counts=4: 2 → 4 tasks, 4 of 8 key groups moved in 1 steps, ")
	require.Contains(t, stderr, "rescale 1h0m0s:best=1 was not done: the run had ended\n")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	all := reported(text)
	require.Len(t, all, 2)
	require.Equal(t, []any{"1000", "counts", 2, 4, 8, 4, 1, ""}, []any{all[0].At, all[0].Stage, all[0].From, all[0].To, all[0].KeyGroups, all[0].GroupsMoved, all[0].Steps, all[0].NotDone})
	require.Positive(t, all[0].SettledMS)
	require.Equal(t, "the run had ended", all[1].NotDone)

	code, stderr = nexmark(t, "bench", "--query", "5", "--rate", "20000", "--parallelism", "2", "--key-groups", "8", "--commit-interval", "5ms",
		"--warmup", "100ms", "--duration", "1900ms", "--json", file, "--rescale", "50ms=4,1h=1")
	require.Equal(t, 0, code, stderr)
	text, err = os.ReadFile(file)
	require.NoError(t, err)
	all = reported(text)
	require.Len(t, all, 2)
	require.Equal(t, []any{"50ms", "counts", 2, 4, ""}, []any{all[0].At, all[0].Stage, all[0].From, all[0].To, all[0].NotDone})
	require.NotEmpty(t, all[1].NotDone)
}
