package tasks_test

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/rescale"
)

// Under each mode the rows are the same, and the receivers get their state as the mode says: in memory
// or from snapshots and change log, by release or by group, in one step or in many, or by starting again.
func TestRescaleModes(t *testing.T) {
	type did struct {
		steps, takes int
		replayed     bool // state was read from snapshots and change log
		restarted    bool
	}
	want := map[string]did{
		rescale.ModeMove:         {steps: 2, takes: 3},
		rescale.ModeRebuild:      {steps: 2, takes: 3, replayed: true},
		rescale.ModeStopStage:    {steps: 1, takes: 3, replayed: true},
		rescale.ModeOrderUnaware: {steps: 2, takes: 6, replayed: true},
		rescale.ModeGradual:      {steps: 4, takes: 6, replayed: true},
		rescale.ModeRestart:      {steps: 1, takes: 0, replayed: true, restarted: true},
	}
	for i := range 2 * len(rescale.Modes) {
		mode, snapshots := rescale.Modes[i/2], i%2 > 0
		t.Run(fmt.Sprint(mode.Name, snapshots), func(t *testing.T) {
			t.Parallel()
			w := newWorld(5, 20_000, 2)
			file := filepath.Join(t.TempDir(), "out")
			g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 5000}
			var takes atomic.Int64
			o := tasks.Options{
				Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet,
				Observer: func(e observe.Event) {
					if e.Step == observe.RescaleTaken {
						takes.Add(1)
					}
				},
			}
			if snapshots { // they follow the groups that a task has taken over, not before it has them
				o.Checkpoints, o.SnapshotInterval = storetest.NewMem(), time.Millisecond
			}
			job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, file, g), o)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return items(job, "by-key") >= 4000 }, 10*time.Second, time.Millisecond)
			// 0 0 0 0 1 1 1 1 becomes 0 0 1 1 2 2 3 3.
			done, err := job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 4, Strategy: "range", Batch: 2, Mode: mode.Name})
			require.NoError(t, err)
			require.Equal(t, mode.Name, done.Mode)
			require.Equal(t, 6, done.GroupsMoved)
			if mode.Restarts { // the time that it tells includes this
				for _, s := range job.Status() {
					require.NotZero(t, s.RestoredMS, s.Stage)
				}
			}
			got := did{steps: done.Steps}
			require.Eventually(t, func() bool { return int(takes.Load()) >= want[mode.Name].takes }, 10*time.Second, time.Millisecond)
			g.open.Store(true)
			require.NoError(t, job.Wait())
			sameRows(t, w.want, lines(t, file))
			instances := 0
			for _, s := range job.Status() {
				got.replayed = got.replayed || s.Stage == "by-key" && s.Replayed+s.Loaded > 0
				instances += int(s.Instance)
			}
			got.takes, got.restarted = int(takes.Load()), instances == 2*len(job.Status())
			require.Equal(t, want[mode.Name], got)
		})
	}
}

// What order-unaware gives up (paper 004, Figure 1): the records that come need the key group with the
// highest number, and wait until the task has restored all the others. What it needs first comes first
// only by chance.
func TestOrderUnawareWaitsForLowerGroups(t *testing.T) {
	key, last := int64(0), 7
	for exec.GroupOf(exec.HashKey(serde.Int64.Append(nil, &key)), 8) != last {
		key++
	}
	var all []optest.Timed[int64]
	for i := range int64(100) {
		all = append(all, optest.At(i, i)) // every group has state
	}
	for i := range int64(200_000) {
		all = append(all, optest.At(100+i/100, key))
	}
	g := gate{optest.Items(delay, all), new(atomic.Bool), 100}
	var taken, before atomic.Int64
	var asked atomic.Bool
	job := operators.NewJob("hot")
	in := operators.FromSource(job, "keys", g, serde.Int64)
	byKey := operators.KeyBy(in, "by-key", serde.Int64, func(k *int64) int64 { return *k })
	out := operators.Process(byKey, "count", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
		count, newcomer, seen := operators.NewValue(c, "count", serde.Int64), asked.Load(), false
		return operators.Handler[int64]{Item: func(*int64) {
			if newcomer && !seen {
				seen = true
				before.Store(taken.Load())
			}
			*count.Upsert()++
		}}
	}).With(serde.Int64)
	operators.ToSink(out, "out", operators.FileSink(filepath.Join(t.TempDir(), "out"), func(dst []byte, _ *operators.KV[int64, int64]) []byte { return dst }, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	j, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{
		Parallelism: 1, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet,
		Observer: func(e observe.Event) {
			if e.Step == observe.RescaleTaken {
				taken.Add(1)
			}
		},
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return items(j, "by-key") >= 100 }, 10*time.Second, time.Millisecond)
	g.open.Store(true)
	asked.Store(true)
	done, err := j.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 2, Strategy: "range", Mode: rescale.ModeOrderUnaware})
	require.NoError(t, err)
	require.Equal(t, 4, done.GroupsMoved)
	require.NoError(t, j.Wait())
	require.EqualValues(t, 4, before.Load(), "groups that the task had when it processed the first item")
	require.EqualValues(t, 4, taken.Load())
}
