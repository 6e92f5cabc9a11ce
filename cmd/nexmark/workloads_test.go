package main

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// The rows of the workloads equal the oracle's under each protocol, at each parallelism, and the
// state of keys that are silent is released.
func TestWorkloadAnswers(t *testing.T) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	for i, k := range keyed {
		base, w, right := keyedSettings(t, i)
		for j, protocol := range []string{"fused", "marker"} {
			for n, parallelism := range []int{1, 2, 4} {
				s := base
				s.Protocol, s.Parallelism, s.Groups, s.Logged = protocol, parallelism, []int{8, 64}[(i+n)%2], (i+j+n)%2 == 0
				s.CommitInterval = []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}[(i+j+n)%3]
				t.Run(fmt.Sprintf("%s/%d/%s/%d", k.name, i, protocol, parallelism), func(t *testing.T) {
					t.Parallel()
					dir := t.TempDir()
					s.Output = filepath.Join(dir, "out")
					log, err := embedded.Open(filepath.Join(dir, "log"), embedded.Options{SegmentBytes: 1 << 20, CacheBytes: 1 << 20, Logger: quiet})
					require.NoError(t, err)
					sum, err := driver.Run(t.Context(), log, s, nil)
					require.NoError(t, err)
					require.NoError(t, log.Close())
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

// A process that runs a workload is killed again and again, and another resumes: the rows are the
// oracle's.
func TestKilledWorkloads(t *testing.T) {
	for i, k := range keyed {
		base, w, right := keyedSettings(t, i)
		t.Run(fmt.Sprintf("%s/%d", k.name, i), func(t *testing.T) {
			t.Parallel()
			args := []string{
				"run", "--workload=" + k.name, "--quiet", "--job=w", "--commit-interval=2ms", "--key-groups=16", "--parallelism=2", "--source=log",
				"--protocol=" + []string{"fused", "marker"}[i%2], fmt.Sprint("--seed=", i), fmt.Sprint("--events=", base.Generator.Events),
				fmt.Sprint("--event-rate=", base.Generator.Rate), fmt.Sprint("--disorder=", k.disorder), fmt.Sprint("--partitions=", base.Partitions),
			}
			for name, v := range maps.All(k.own) {
				args = append(args, "--"+name+"="+v)
			}
			dir := t.TempDir()
			out := filepath.Join(dir, "out.jsonl")
			killedUntilDone(t, rand.New(rand.NewPCG(uint64(i), 29)), 4, dir, out, args)
			sameRows(t, w, right, out)
		})
	}
}
