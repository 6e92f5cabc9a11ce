package tasks_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/state"
)

// Key groups move between the tasks of a stage while the job runs, out and in, with and without
// crashes, and the rows are those of a job that nothing has disturbed.
func TestRescaledAnswers(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 9))
			w := newWorld(seed, 20_000, 2)
			file := filepath.Join(t.TempDir(), "out")
			g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
			o := tasks.Options{
				Parallelism: 1 + rng.IntN(3), Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Protocol: []string{"fused", "marker"}[seed%2],
			}
			if seed >= 5 {
				o.State = onDisk(t)
			}
			job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, file, g), o)
			require.NoError(t, err)
			for i := range 3 {
				if i == 2 {
					g.open.Store(true)
				}
				n := 1 + rng.IntN(8)
				done, err := job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: n, Batch: rng.IntN(3), Mode: aMode(rng)})
				if err != nil && i == 2 {
					break // the job may have ended
				}
				require.NoError(t, err)
				require.Equal(t, n, done.To)
				require.Equal(t, n, job.Layout().Stages[2].Tasks)
				t.Logf("%+v", *done)
			}
			require.NoError(t, job.Wait())
			sameRows(t, w.want, lines(t, file))
		})
	}
}

// onDisk returns a store for state of which next to nothing stays in memory.
func onDisk(t *testing.T) *state.Pebble {
	p, err := state.OpenPebble(filepath.Join(t.TempDir(), "state"), 8<<20) // with less, writers wait for compactions
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	others := p.Task()
	for i := range 1 << 15 {
		others.Table(i).Limit() // takes a share of the memory
	}
	return p
}

// Tasks die, and the process is started again, while key groups move; snapshots are made, and the
// log is trimmed.
func TestRescaledOverCrashes(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 10))
			w := newWorld(seed, 60_000, 2)
			file := filepath.Join(t.TempDir(), "out")
			log := mem.New(mem.Options{})
			o := tasks.Options{
				Parallelism: 1 + rng.IntN(3), Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Protocol: []string{"fused", "marker"}[seed%2],
				TrimBytes: 1, TrimInterval: time.Millisecond, Standbys: rng.IntN(2),
			}
			if rng.IntN(3) > 0 {
				o.Checkpoints, o.SnapshotInterval = storetest.NewMem(), time.Millisecond
			}
			if seed%3 == 2 {
				o.State = onDisk(t)
			}
			overCrashes(t, rng, 12_000, func() *tasks.Job {
				job, err := tasks.Start(t.Context(), log, w.plan(t, file), o)
				require.NoError(t, err)
				return job
			}, func(job *tasks.Job, life int) {
				goals := rand.New(rand.NewPCG(seed, uint64(life)))
				for {
					r := tasks.Rescale{Stage: "by-key", Tasks: 1 + goals.IntN(8), Batch: goals.IntN(3), Mode: aMode(goals)}
					if _, err := job.Rescale(t.Context(), r); err != nil {
						return
					}
				}
			})
			sameRows(t, w.want, lines(t, file))
		})
	}
}

// aMode returns any mode: the rows are the same under all.
func aMode(rng *rand.Rand) string { return rescale.Modes[rng.IntN(len(rescale.Modes))].Name }

// Sources that may not be far ahead of their consumers do not wait for tasks that have left.
func TestRescaledWithLead(t *testing.T) {
	w := newWorld(3, 20_000, 1)
	file := filepath.Join(t.TempDir(), "out")
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, file, g), tasks.Options{
		Parallelism: 3, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Lead: 4 << 10,
	})
	require.NoError(t, err)
	for _, n := range []int{1, 2, 1} {
		_, err := job.Rescale(t.Context(), tasks.Rescale{Stage: "spread", Tasks: n})
		require.NoError(t, err)
	}
	g.open.Store(true)
	require.NoError(t, job.Wait())
	sameRows(t, w.want, lines(t, file))
}

// What cannot be done is refused with a reason, and the job continues as it was.
func TestRescaleRefused(t *testing.T) {
	for _, c := range []struct {
		protocol, stage, strategy string
		tasks                     int
		want                      string
	}{
		{"txn", "by-key", "", 2, "use fused or marker"},
		{"aligned", "by-key", "", 2, "it keeps no change log; stop the job"},
		{"unsafe", "by-key", "", 2, "it keeps no change log; stop the job"},
		{"fused", "nothing", "", 2, `no stage "nothing"; it has`},
		{"fused", "keys", "", 2, "reads a source of one partition"},
		{"fused", "out", "", 2, "is a sink"},
		{"fused", "by-key", "", 0, "at least 1"},
		{"fused", "by-key", "", 9, "8 key groups: at most 8"},
		{"fused", "by-key", "best", 2, "choose one of sticky, range, hash"},
	} {
		t.Run(c.protocol+"/"+c.stage, func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, 5000, 1)
			file := filepath.Join(t.TempDir(), "out")
			g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 100}
			o := tasks.Options{Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Protocol: c.protocol, Checkpoints: storetest.NewMem()}
			job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, file, g), o)
			require.NoError(t, err)
			_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: c.stage, Tasks: c.tasks, Strategy: c.strategy})
			require.ErrorContains(t, err, c.want)
			g.open.Store(true)
			require.NoError(t, job.Wait())
			sameRows(t, w.want, lines(t, file))
			_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 3})
			require.ErrorIs(t, err, tasks.ErrEnded)
		})
	}
}
