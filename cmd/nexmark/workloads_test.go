package main

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

type keyedRun struct {
	name     string
	own      map[string]string
	disorder time.Duration
	eventsPS int64
}

// keyed are the workloads with keys and clocks of their own, with options that give some rows within
// 20 s of event time. The disorder is that of each key.
var keyed = []keyedRun{
	{"kw", map[string]string{"sensors": "40", "key-weights": "zipf:0.8", "drift": "30"}, 300 * time.Millisecond, 500},
	{"kw", map[string]string{"sensors": "30", "aggregate": "list", "disorder-share": "25", "skew": "2s"}, 0, 500},
	{"kw", map[string]string{"sensors": "30", "aggregate": "items", "lateness": "1s", "late": "each"}, 100 * time.Millisecond, 500},
	{"ysb", map[string]string{"sensors": "20", "window": "3s", "key-weights": "zipf:1.1", "partition-by": "key"}, time.Second, 500},
	{"lvd", map[string]string{"sensors": "100", "skew": "700ms", "window": "500ms", "key-ids": "prefix"}, 0, 300},
	{"bridge", map[string]string{"sensors": "20", "partition-by": "key"}, 200 * time.Millisecond, 500},
	{"ride", map[string]string{"window": "3s"}, time.Second, 500},
}

// settings returns a run of 20 s of the i-th of keyed, and the right answer.
func keyedSettings(t *testing.T, i int) (driver.Settings, *workload.Workload, []string) {
	t.Helper()
	k := keyed[i]
	w, err := workload.ByName(k.name)
	require.NoError(t, err)
	s := driver.Settings{
		Workload: k.name, Own: k.own, Q7Window: 10 * time.Second, Partitions: 1 + i%3,
		Generator: generator.Config{Seed: uint64(i), Events: 20 * k.eventsPS, Rate: k.eventsPS, Base: generator.DefaultBase, Disorder: k.disorder},
	}
	p := &workload.Params{Own: k.own}
	s.WatermarkDelay = w.Delay(p, s.Generator)
	right, err := w.Right(p, s.Generator)
	require.NoError(t, err)
	require.NotEmpty(t, right)
	return s, w, right
}

// grains are those that workloads run with.
var grains = []string{"task", "key", "keys:16", "by-producer"}

// withGrain returns the settings with a grain. With a clock for each key all items of a key are in one
// partition, and with clocks that keys share there is one partition: an item is late by what came by
// another path. Clocks by producer have keys in all partitions; withPaths gives each a task.
func withGrain(s driver.Settings, grain string) driver.Settings {
	s.Own = maps.Clone(s.Own)
	s.Own["grain"] = grain
	switch grain {
	case "by-producer":
		s.Own["grain"], s.Own["by-producer"], s.Own["partition-by"] = "key", "true", "none"
	case "key":
		s.Own["partition-by"] = "key"
	case "keys:16":
		s.Partitions = 1
	}
	return s
}

// withPaths gives a run with clocks by producer a partition for each task of the source.
func withPaths(s driver.Settings) driver.Settings {
	if s.Own["by-producer"] == "true" {
		s.Partitions = s.Parallelism
	}
	return s
}

// sameRows requires that a file has the right rows.
func sameRows(t *testing.T, w *workload.Workload, right []string, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	rows := strings.SplitAfter(string(b), "\n")
	require.Empty(t, rows[len(rows)-1], "the last line is not complete")
	require.Equal(t, right, w.Last(rows[:len(rows)-1]))
	require.Len(t, rows, len(right)+1, "nothing is late, so no row replaces another")
}

// The rows of the workloads equal the oracle's with each grain, under each protocol, at each parallelism,
// and the state of keys that are silent is released. A run takes one grain of four for each of the others
// (proctest.Drawn).
func TestWorkloadAnswers(t *testing.T) {
	for i, k := range keyed {
		base, w, right := keyedSettings(t, i)
		for j, protocol := range []string{"fused", "marker"} {
			for n, parallelism := range []int{1, 2, 4} {
				for g, grain := range grains {
					name := fmt.Sprintf("%s/%d/%s/%d/%s", k.name, i, protocol, parallelism, grain)
					if !proctest.Drawn(t.Name()+": "+name, i+j+n+g, len(grains)) {
						continue
					}
					s := withGrain(base, grain)
					s.Protocol, s.Parallelism, s.Groups, s.Logged = protocol, parallelism, []int{8, 64}[(i+n)%2], (i+j+n)%2 == 0
					s.CommitInterval = []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}[(i+j+n)%3]
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						s = withPaths(s)
						s.Output = filepath.Join(t.TempDir(), "out")
						sum := runOnce(t, s)
						require.Zero(t, sum.Late)
						sameRows(t, w, right, s.Output)
						if k.name == "ride" {
							require.Zero(t, sum.StateKeys, "silent keys")
						}
					})
				}
			}
		}
	}
}

// runOnce runs a workload to its end, on a log of its own.
func runOnce(t *testing.T, s driver.Settings) *driver.Summary {
	t.Helper()
	log, err := embedded.Open(filepath.Join(t.TempDir(), "log"), embedded.Options{SegmentBytes: 1 << 20, CacheBytes: 1 << 20, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	require.NoError(t, err)
	sum, err := driver.Run(t.Context(), log, s, nil)
	require.NoError(t, err)
	require.NoError(t, log.Close())
	return sum
}

// A process that runs a workload is killed again and again, and another resumes: the rows are the
// oracle's. A run takes one grain of four for each workload.
func TestKilledWorkloads(t *testing.T) {
	for i, k := range keyed {
		base, w, right := keyedSettings(t, i)
		for g, grain := range grains {
			name := fmt.Sprintf("%s/%d/%s", k.name, i, grain)
			if !proctest.Drawn(t.Name()+": "+name, i+g, len(grains)) {
				continue
			}
			s := withGrain(base, grain)
			s.Protocol, s.Parallelism, s.Groups, s.CommitInterval, s.Logged = []string{"fused", "marker"}[i%2], 2, 16, 2*time.Millisecond, true
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				sameRows(t, w, right, killedRun(t, withPaths(s), uint64(i)))
			})
		}
	}
}

// killedRun runs a workload in a process that is killed until it has ended, and returns the file of rows.
func killedRun(t *testing.T, s driver.Settings, seed uint64) (file string) {
	t.Helper()
	args := []string{
		"run", "--workload=" + s.Workload, "--quiet", "--job=w", fmt.Sprint("--commit-interval=", s.CommitInterval), fmt.Sprint("--key-groups=", s.Groups),
		fmt.Sprint("--parallelism=", s.Parallelism), "--source=" + map[bool]string{false: "chained", true: "log"}[s.Logged],
		"--protocol=" + s.Protocol, fmt.Sprint("--seed=", s.Generator.Seed), fmt.Sprint("--events=", s.Generator.Events),
		fmt.Sprint("--event-rate=", s.Generator.Rate), fmt.Sprint("--disorder=", s.Generator.Disorder), fmt.Sprint("--partitions=", s.Partitions),
	}
	for name, v := range maps.All(s.Own) {
		args = append(args, "--"+name+"="+v)
	}
	dir := t.TempDir()
	file = filepath.Join(dir, "out.jsonl")
	killedUntilDone(t, rand.New(rand.NewPCG(seed, 29)), 4, dir, file, args)
	return file
}

// With a delay that is too small, a clock for each key drops the same items in every run, whatever the
// parallelism, the protocol, and how often processes were killed. The clock of a task does not: the test
// could see a difference. TAILRACE_RUNS is the number of runs, 4 by default; every fourth is killed. There are more with the
// clock of a task if these agree.
func TestTooSmallADelay(t *testing.T) {
	runs := 4
	if v := os.Getenv("TAILRACE_RUNS"); v != "" {
		var err error
		runs, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	w, err := workload.ByName("kw")
	require.NoError(t, err)
	base := driver.Settings{
		Workload: "kw", Partitions: 3, Own: map[string]string{"sensors": "20", "lateness": "0s", "window": "1s", "partition-by": "key"},
		Generator: generator.Config{Seed: 7, Events: 20_000, Rate: 1000, Base: generator.DefaultBase, Disorder: 2 * time.Second},
	}
	p := &workload.Params{Own: base.Own}
	right, err := w.Right(p, base.Generator)
	require.NoError(t, err)
	answers := map[string]map[string]int{}
	for _, grain := range []string{"key", "task"} {
		answers[grain] = map[string]int{}
		for run := 0; run < runs || grain == "task" && len(answers[grain]) == 1 && run < 10*runs; run++ {
			s := withGrain(base, grain)
			s.WatermarkDelay = 300 * time.Millisecond
			if grain == "key" {
				s.WatermarkDelay = w.Delay(p, s.Generator)
				s.Own["key-delay"] = "300ms"
			}
			s.Protocol, s.Parallelism, s.Groups = []string{"fused", "marker"}[run%2], 1+run%4, []int{8, 16, 64}[run%3]
			s.CommitInterval, s.Logged = []time.Duration{time.Millisecond, 20 * time.Millisecond}[run/2%2], run%3 > 0
			late := "unknown"
			if run%4 == 3 && grain == "key" {
				s.Output = killedRun(t, s, uint64(run))
			} else {
				s.Output = filepath.Join(t.TempDir(), "out")
				late = fmt.Sprint(runOnce(t, s).Late)
			}
			b, err := os.ReadFile(s.Output)
			require.NoError(t, err)
			rows := slices.Sorted(strings.Lines(string(b)))
			if grain == "key" {
				require.False(t, slices.Equal(right, rows), "nothing is late: the test cannot fail")
			}
			answers[grain][strings.Join(rows, "")]++
			t.Logf("%s, run %d: %d rows, %s late items", grain, run, len(rows), late)
		}
	}
	require.Len(t, answers["key"], 1)
	require.Greater(t, len(answers["task"]), 1, "the test cannot fail")
}
