package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/tags"
)

// drifting returns a run of a workload that takes so long, in which other keys get the weights four times
// a second, and the right answer.
func drifting(t *testing.T, name string, seed uint64, took time.Duration) (driver.Settings, *workload.Workload, []string) {
	t.Helper()
	const rate = 20_000
	w, err := workload.ByName(name)
	require.NoError(t, err)
	own := map[string]map[string]string{
		"kw":    {"sensors": "300", "key-weights": "zipf:1", "drift": "24"},
		"ysb":   {"sensors": "100", "key-weights": "zipf:1", "drift": "24"},
		"lvd":   {"sensors": "30", "skew": "700ms"},
		"count": {"keys": "20000", "key-weights": "zipf:1", "drift": "24"},
	}[name]
	s := driver.Settings{
		Workload: name, Own: own, Q7Window: 10 * time.Second,
		Generator:  generator.Config{Seed: seed, Events: rate * int64(took/time.Second), Rate: rate / 10, Base: generator.DefaultBase},
		Partitions: 2, Rate: rate, Logged: true, Parallelism: 4, Groups: 64,
	}
	p := &workload.Params{Own: s.Own}
	if name == "count" { // it has no windows
		s.Groups, s.Slots = 8, 8
	} else {
		s.WatermarkDelay = w.Delay(p, s.Generator)
	}
	right, err := w.Right(p, s.Generator)
	require.NoError(t, err)
	return s, w, right
}

// Key groups move several times a second, because the load drifts, and the rows are the oracle's.
func TestBalancedAnswers(t *testing.T) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	for i, protocol := range []string{"fused", "marker"} {
		for _, dispatch := range []string{"least-count", "auto"} {
			t.Run(protocol+"/"+dispatch, func(t *testing.T) {
				t.Parallel()
				s, w, right := drifting(t, "kw", uint64(i), 3*time.Second)
				dir := t.TempDir()
				s.Output, s.Protocol, s.CommitInterval = filepath.Join(dir, "out"), protocol, 10*time.Millisecond
				s.Balance = &tasks.Balance{Dispatch: dispatch, When: tasks.BalanceWhen{Every: 100}}
				require.NoError(t, s.CheckBalance())
				require.Equal(t, "keys", s.Balance.Stage)
				log, err := embedded.Open(filepath.Join(dir, "log"), embedded.Options{SegmentBytes: 1 << 20, CacheBytes: 1 << 20, Logger: quiet})
				require.NoError(t, err)
				sum, err := driver.Run(t.Context(), log, s, nil)
				require.NoError(t, err)
				require.NoError(t, log.Close())
				sameRows(t, w, right, s.Output)
				b := sum.Balanced
				require.NotNil(t, b)
				require.Empty(t, b.Error)
				require.Greater(t, b.Switches, 1, "%+v", b)
				require.GreaterOrEqual(t, b.MovedGroups, b.Switches)
				require.Len(t, b.ByTask, 4)
				require.Greater(t, b.Mean, 0.0)
			})
		}
	}
}

// A process whose key groups move several times a second, and whose routing tables change, is killed with SIGKILL at random moments,
// and started again, until the input has ended: the rows are the oracle's. State is in memory, or on disk. TAILRACE_KILLS=N kills N times in all
// (make balance-kills).
func TestKilledWhileBalanced(t *testing.T) {
	wanted := 10
	if v := os.Getenv("TAILRACE_KILLS"); v != "" {
		var err error
		wanted, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	total, steps, rows, tables, amid := 0, 0, 0, 0, 0
	for seed := uint64(0); total < wanted; seed++ {
		rng := rand.New(rand.NewPCG(seed, 31))
		name, protocol := []string{"count", "kw", "count", "ysb", "count", "lvd"}[seed%6], []string{"fused", "marker"}[seed/2%2]
		if !t.Run(fmt.Sprintf("%d/%s/%s", seed, name, protocol), func(t *testing.T) {
			s, w, right := drifting(t, name, seed, 3*time.Second)
			if seed%12 < 6 {
				s.Groups, s.Slots = 8, 8
			}
			dir := t.TempDir()
			out := filepath.Join(dir, "out.jsonl")
			args := []string{
				"run", "--workload=" + name, fmt.Sprintf("--commit-interval=%dms", map[bool]int{true: 40, false: 5}[s.Slots > 0]), // so that tables change for longer
				"--parallelism=4", fmt.Sprint("--key-groups=", s.Groups), fmt.Sprint("--slots=", s.Slots), "--source=log", "--protocol=" + protocol, "--partitions=2",
				fmt.Sprint("--rate=", s.Rate), fmt.Sprint("--seed=", s.Generator.Seed), fmt.Sprint("--events=", s.Generator.Events), fmt.Sprint("--event-rate=", s.Generator.Rate),
				"--balance=every=50ms", "--snapshot-interval=100ms", "--data=" + filepath.Join(dir, "data"), "--output=" + out,
			}
			for name, v := range s.Own {
				args = append(args, "--"+name+"="+v)
			}
			if seed%3 > 0 {
				args = append(args, "--state=pebble", "--state-memory=1MiB")
			}
			for kills := 0; ; {
				cmd := program(t, args...)
				var errs bytes.Buffer
				cmd.Stderr = &errs
				require.NoError(t, cmd.Start())
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				var after <-chan time.Time
				if kills < 4 && total < wanted {
					after = time.After(time.Duration(200+rng.IntN(500)) * time.Millisecond)
				}
				var err error
				select {
				case <-after:
					_ = cmd.Process.Signal(syscall.SIGKILL) // it may just have ended
					err = <-ended
				case err = <-ended:
				}
				steps += strings.Count(errs.String(), "key groups moved, degree")
				tables += strings.Count(errs.String(), "slots used")
				if !killedBy(t, err, &errs) {
					break
				}
				kills, total = kills+1, total+1
				if s.Slots > 0 && changing(t, filepath.Join(dir, "data"), name) {
					amid++
				}
			}
			sameRows(t, w, right, out)
			rows += len(right)
		}) {
			return
		}
	}
	t.Logf("killed %d times amid %d steps of balancing, of which %d replaced the routing table; %d kills while a table was changing: %d rows, none lost or doubled", total, steps, tables, amid, rows)
	require.NotZero(t, tables, "no table was replaced")
	require.Greater(t, steps, total, "key groups did not move between the kills: the test shows nothing")
}

// changing reports whether the process that had a log has ended while a routing table was changing: tasks had not adopted it, or what
// is in slots was to move.
func changing(t *testing.T, dir, job string) bool {
	log, err := embedded.Open(dir, embedded.Options{SegmentBytes: 1 << 20, CacheBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	var of struct{ ID string }
	if c, err := log.Get(t.Context(), tags.JobKey(job)); len(c.Value) > 0 {
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(c.Value, &of))
	}
	job = of.ID
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	p, _, err := records.LastPlan(t.Context(), log, job, tail)
	require.NoError(t, err)
	switch {
	case p == nil || p.Epoch == 0:
		return false
	case len(p.Goal) > 0:
		return true
	case routing.Settled(p):
		return false
	}
	for i := range p.Stages {
		for task := range p.Stages[i].Tasks {
			m, _, err := records.LastMarker(t.Context(), log, job, p.Stages[i].Name, task, tail)
			require.NoError(t, err)
			if p.Stages[i].Name != "events" && p.Stages[i].Name != "rows" && (m == nil || m.Adopted < p.Epoch && !m.Ended) {
				return true
			}
		}
	}
	return false
}

// What cannot be balanced is refused before anything is opened.
func TestBalanceRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--balance=sometimes", `--balance: "sometimes": use off, every=20s, items=10000000 or below=0.9`},
		{"--balance=below=1.5", "use off, every=20s"},
		{"--balance=every=1ms", "use off, every=20s"},
		{"--balance=quiet=1s", "use off, every=20s"},
		{"--balance=below=0.9,every=2s", "use off, every=20s"},
		{"--balance=off --dispatch=best", `there is no dispatch "best"`},
		{"--balance=off --dispatch=weight --task-weights=3,x", "use numbers above 0"},
		{"--balance=rows:off", "rows"},
		{"--balance=off --protocol=txn", "txn"},
	} {
		code, stderr := nexmark(t, append([]string{"run", "--workload=kw", "--events=1000"}, strings.Fields(c.args)...)...)
		require.Equal(t, 2, code, "%s: %s", c.args, stderr)
		require.Contains(t, stderr, c.want)
	}
}
