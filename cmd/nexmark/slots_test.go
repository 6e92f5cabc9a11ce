package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
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
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// counted returns a run of workload count, whose keys have Zipf weights: four tasks have eight key groups, which are too
// coarse for them.
func counted(t *testing.T, seed uint64, events, rate int64) (driver.Settings, *workload.Workload, []string) {
	t.Helper()
	w, err := workload.ByName("count")
	require.NoError(t, err)
	s := driver.Settings{
		Workload: "count", Own: map[string]string{"keys": "20000", "key-weights": "zipf:1"}, Q7Window: 10 * time.Second,
		Generator:  generator.Config{Seed: seed, Events: events, Rate: rate, Base: generator.DefaultBase},
		Partitions: 2, Rate: rate, Logged: true, Parallelism: 4, Groups: 8,
	}
	p := &workload.Params{Own: s.Own}
	right, err := w.Right(p, s.Generator)
	require.NoError(t, err)
	return s, w, right
}

// Eight key groups are too coarse for four tasks: with slots, a table makes the tasks' loads even. A second run resumes the job with it,
// and only measures. The rows are the oracle's.
func TestBalanceWithSlots(t *testing.T) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	for _, slots := range []int{0, 8} {
		for i, protocol := range []string{"fused", "marker"} {
			t.Run(fmt.Sprintf("%s/%d", protocol, slots), func(t *testing.T) {
				t.Parallel()
				s, w, right := counted(t, uint64(i), 720_000, 60_000)
				dir := t.TempDir()
				s.Output, s.Protocol, s.CommitInterval, s.Slots = filepath.Join(dir, "out"), protocol, 10*time.Millisecond, slots
				s.Balance = &tasks.Balance{Dispatch: "least-count", When: tasks.BalanceWhen{Every: 1000, Quiet: 1000}}
				require.NoError(t, s.CheckBalance())
				log, err := embedded.Open(filepath.Join(dir, "log"), embedded.Options{SegmentBytes: 1 << 20, CacheBytes: 1 << 20, Logger: quiet})
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began, steps := time.Now(), 0
				s.OnBalance = func(string) { steps++ }
				s.Timeline = func(driver.Moment) error {
					if steps > 0 && time.Since(began) > 7*time.Second { // at this rate five seconds of events are left
						cancel()
					}
					return nil
				}
				_, err = driver.Run(ctx, log, s, nil)
				require.ErrorIs(t, err, context.Canceled)
				s.Timeline, s.OnBalance, s.Balance.When = nil, nil, tasks.BalanceWhen{}
				sum, err := driver.Run(t.Context(), log, s, nil)
				require.NoError(t, err)
				require.NoError(t, log.Close())
				sameRows(t, w, right, s.Output)
				b := sum.Balanced
				require.NotNil(t, b)
				require.Empty(t, b.Error)
				text, err := json.Marshal(b)
				require.NoError(t, err)
				t.Logf("degree %.3f of %d items behind %d steps, %d slots used", b.Became, b.BecameOf, steps, b.SlotsUsed)
				require.Zero(t, b.Switches)
				if slots == 0 {
					require.Less(t, b.Became, 0.85)
					require.NotContains(t, string(text), "slots")
					return
				}
				require.Greater(t, b.Became, 0.9)
				require.Positive(t, b.Epoch)
				require.Positive(t, b.SlotsUsed)
				require.LessOrEqual(t, b.SlotsUsed, slots)
				require.Contains(t, string(text), fmt.Sprintf(`"slots_used":%d,"epoch":%d`, b.SlotsUsed, b.Epoch))
			})
		}
	}
}

// A run that is interrupted when a table places keys makes a savepoint. Another one begins from it with that table, in another log, with
// other tasks.
func TestSavepointWithSlots(t *testing.T) {
	for i, protocol := range []string{"fused", "marker"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s, w, right := counted(t, uint64(i), 720_000, 60_000)
			s.Output, s.Protocol, s.CommitInterval, s.Slots = filepath.Join(t.TempDir(), "out"), protocol, 10*time.Millisecond, 8
			s.Checkpoints, s.Savepoint = storetest.NewMem(), "one"
			s.Balance = &tasks.Balance{Dispatch: "least-count", When: tasks.BalanceWhen{Every: 200, Quiet: 200}}
			require.NoError(t, s.CheckBalance())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s.OnBalance = func(step string) {
				if strings.Contains(step, "placed in slots") {
					cancel()
				}
			}
			sum, err := driver.Run(ctx, mem.New(mem.Options{}), s, nil)
			require.NoError(t, err)
			require.NotNil(t, sum.Savepoint)
			require.Equal(t, savepoint.FormatSlots, sum.Savepoint.Format)
			used := 0
			for _, st := range sum.Savepoint.Stages {
				if used += len(st.Routes); len(st.Routes) > 0 {
					require.Equal(t, 8, st.Slots)
				}
			}
			require.Positive(t, used)
			s.Job, s.From, s.Savepoint, s.Rate, s.Parallelism = "second", "one", "", 0, 3
			s.OnBalance, s.Balance.When = nil, tasks.BalanceWhen{} // it only measures
			sum, err = driver.Run(t.Context(), mem.New(mem.Options{}), s, nil)
			require.NoError(t, err)
			sameRows(t, w, right, s.Output)
			require.NotNil(t, sum.Balanced)
			require.Positive(t, sum.Balanced.SlotsUsed)
			require.Zero(t, sum.Balanced.Epoch)
		})
	}
}

// What cannot have slots is refused, with what to do instead.
func TestSlotsRefused(t *testing.T) {
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"--slots 300: at least 0, at most 256":                {"run", "--workload=count", "--events=1000", "--slots=300"},
		"which they cannot under protocol txn":                {"run", "--workload=count", "--events=1000", "--slots=4", "--protocol=txn"},
		"key-weights zipf:1: there are weights of at most":    {"run", "--workload=count", "--events=1000", "--keys=20000000", "--key-weights=zipf:1"},
		"it has 4 slots a stream (0: none), is now to have 0": {"run", "--workload=count", "--events=1000", "--data=" + dir, "--output=" + filepath.Join(dir, "out")},
	} {
		if len(args) == 5 && args[3] == "--data="+dir {
			code, stderr := nexmark(t, append(args, "--slots=4")...)
			require.Zero(t, code, stderr)
			require.NoError(t, os.Remove(filepath.Join(dir, "out")))
		}
		code, stderr := nexmark(t, args...)
		require.NotZero(t, code, args)
		require.Contains(t, stderr, want)
	}
}
