package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/workload"
)

// turning are workloads of some thousand keys whose items are in order for 30 s of event time; then those of each fourth key are
// 4 s behind.
var turning = map[string]map[string]string{
	"kw":     {"sensors": "700", "skew": "0s", "window": "2s"},
	"ysb":    {"sensors": "2000", "window": "3s"},
	"lvd":    {"sensors": "2000", "skew": "0s", "window": "1s"},
	"bridge": {"sensors": "2000"},
	"ride":   {"window": "3s"},
}

// turningSettings returns a run of six seconds or more that turns after three, and the right answer.
func turningSettings(t *testing.T, name string) (driver.Settings, *workload.Workload, []string) {
	t.Helper()
	w, err := workload.ByName(name)
	require.NoError(t, err)
	s := driver.Settings{
		Workload: name, Own: map[string]string{"grain": "auto", "partition-by": "key", "lag": "4s", "lag-from": "30s"}, Q7Window: 10 * time.Second,
		Generator: generator.Config{Seed: 3, Events: 600_000, Rate: 10_000, Base: generator.DefaultBase}, Partitions: 2, Rate: 100_000,
		Groups: 16, CommitInterval: 20 * time.Millisecond,
	}
	if name == "ride" { // two items a key: it takes longer to measure enough
		s.GrainInterval, s.Generator.Events, s.Rate, s.Own["lag-from"] = 4*time.Second, 1_200_000, 120_000, "60s"
	}
	for k, v := range turning[name] {
		s.Own[k] = v
	}
	p := &workload.Params{Own: s.Own}
	s.WatermarkDelay = w.Delay(p, s.Generator)
	right, err := w.Right(p, s.Generator)
	require.NoError(t, err)
	return s, w, right
}

// A grain that chooses itself is switched as the data turn from ordered to skewed, and the rows are the oracle's.
// A run takes one of five.
func TestChosenGrains(t *testing.T) {
	for i, name := range []string{"kw", "ysb", "lvd", "bridge", "ride"} {
		for j, protocol := range []string{"fused", "marker"} {
			for n, parallelism := range []int{1, 2, 4} {
				run := fmt.Sprintf("%s/%s/%d", name, protocol, parallelism)
				if !proctest.Drawn(t.Name()+": "+run, i+j+n, 5) {
					continue
				}
				t.Run(run, func(t *testing.T) {
					t.Parallel()
					s, w, right := turningSettings(t, name)
					s.Protocol, s.Parallelism, s.Logged = protocol, parallelism, n == 1
					s.Output = filepath.Join(t.TempDir(), "out")
					var said []string
					s.OnGrain = func(line string) { said = append(said, line) }
					sum := runOnce(t, s)
					require.Zero(t, sum.Late)
					require.Equal(t, "auto", sum.Grain)
					require.Zero(t, sum.KeyDelay, "the items of a key are in order")
					require.Len(t, sum.Chosen, 1)
					require.Equal(t, "key", sum.Chosen[0].Grain, sum.Chosen[0].Why)
					require.Equal(t, 1, sum.Chosen[0].Count)
					require.Contains(t, sum.Chosen[0].Switches[0].Why, "the task's items are ")
					require.Len(t, said, 1)
					require.Contains(t, said[0], "a clock for each key, delay ")
					sameRows(t, w, right, s.Output)
				})
			}
		}
	}
}

// A process dies by kill -9 behind a switch. The next one has the grain that the log has, and the rows are the oracle's.
func TestKilledBehindASwitch(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s, w, right := turningSettings(t, "kw")
			dir := t.TempDir()
			file := filepath.Join(dir, "out.jsonl")
			args := []string{
				"run", "--workload=kw", "--job=w", "--data=" + filepath.Join(dir, "data"), "--output=" + file, "--parallelism=2", "--partitions=2", "--source=log",
				"--protocol=" + protocol, fmt.Sprint("--seed=", s.Generator.Seed), fmt.Sprint("--events=", s.Generator.Events),
				fmt.Sprint("--event-rate=", s.Generator.Rate), fmt.Sprint("--rate=", s.Rate), fmt.Sprint("--commit-interval=", s.CommitInterval),
			}
			for name, v := range s.Own {
				args = append(args, "--"+name+"="+v)
			}
			cmd := program(t, args...)
			out := &said{}
			cmd.Stderr = out
			require.NoError(t, cmd.Start())
			require.Eventually(t, func() bool { return out.has("grain of keys: a clock for each key, delay ") }, time.Minute, 5*time.Millisecond)
			require.NoError(t, cmd.Process.Kill())
			require.Error(t, cmd.Wait())
			code, text := nexmark(t, args...)
			require.Zero(t, code, text)
			require.NotContains(t, text, "grain of keys", "it is as before")
			sameRows(t, w, right, file)
		})
	}
}

// said is what a process has said so far.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Contains(s.text.Bytes(), []byte(text))
}
