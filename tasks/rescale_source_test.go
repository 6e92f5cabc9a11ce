package tasks_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/rescale"
)

// skewed is a source whose partitions have their items at different rates, so that its tasks are at
// different event times. Until it is open, each has few of them in a millisecond.
type skewed struct {
	operators.Source[int64]
	open *atomic.Bool
	few  int
}

func (s skewed) Open(p int) (operators.Partition[int64], error) {
	part, err := s.Source.Open(p)
	return &skewedPartition{Partition: part, most: s.few + s.few*(p%3)/4, open: s.open}, err
}

type skewedPartition struct {
	operators.Partition[int64]
	most, left int // items of a millisecond
	ms         int64
	open       *atomic.Bool
}

func (p *skewedPartition) Read(b *operators.Batch[int64], most int, now int64) (operators.Status, error) {
	if p.open.Load() {
		return p.Partition.Read(b, most, now)
	}
	if p.ms != now {
		p.ms, p.left = now, p.most
	}
	if p.left <= 0 {
		return operators.Status{State: operators.Waiting, Due: now + 1}, nil
	}
	p.left -= 5 // a read has no more
	return p.Partition.Read(b, min(most, 5), now)
}

// ahead counts each key of each partition per 100 ms in the stage of the source, so that this has state.
func ahead(t *testing.T, w *world, parts int, file string, open *atomic.Bool, few int) *operators.Plan {
	t.Helper()
	counts := map[[2]int64]int{}
	for p := range w.parts {
		for i := range w.parts[p] {
			it := &w.parts[p][i]
			it.Value = it.Value*int64(parts) + int64(p)
			counts[[2]int64{(it.Time + 1000) / 100, it.Value}]++
		}
	}
	w.want = nil
	for k, c := range counts {
		w.want = append(w.want, fmt.Sprintf("%d %d %d", (k[0]-10)*100, k[1], c))
	}
	slices.Sort(w.want)
	return aheadPlan(t, skewed{optest.Items(delay, w.parts...), open, few}, parts, file)
}

func aheadPlan(t *testing.T, src operators.Source[int64], parts int, file string) *operators.Plan {
	t.Helper()
	job := operators.NewJob("ahead")
	keys := operators.KeyAhead(operators.FromSource(job, "keys", src, serde.Int64), serde.Int64, func(k *int64) int64 { return *k }, func(k *int64) int { return int(*k) % parts })
	counts := operators.CountWindows(keys, operators.Tumbling(100*time.Millisecond))
	operators.ToSink(operators.Rebalance(counts, "spread"), "out", operators.FileSink(file, func(dst []byte, c *operators.KV[int64, operators.Windowed[int64]]) []byte {
		return fmt.Appendf(dst, "%d %d %d\n", c.Value.Start, c.Key, c.Value.Value)
	}, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan
}

// Partitions of a source move between its tasks, out and in, while tasks die and the process starts again:
// the rows are those of an undisturbed job, with state in the stage of the source and without.
func TestSourceRescaledOverCrashes(t *testing.T) {
	const parts = 6
	var rescaled atomic.Int64
	t.Run("all", func(t *testing.T) {
		for seed := range uint64(16) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, 11))
				w := newWorld(seed, 60_000, parts)
				file := filepath.Join(t.TempDir(), "out")
				open := new(atomic.Bool)
				plan := counts(t, file, skewed{optest.Items(delay, w.parts...), open, 40})
				if seed%4 >= 2 {
					plan = ahead(t, &w, parts, file, open, 40)
				}
				log := mem.New(mem.Options{})
				o := tasks.Options{
					Parallelism: 1 + rng.IntN(3), Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Protocol: []string{"fused", "marker"}[seed%2],
					TrimBytes: 1, TrimInterval: time.Millisecond, Standbys: rng.IntN(2),
				}
				if rng.IntN(3) > 0 {
					o.Checkpoints, o.SnapshotInterval = storetest.NewMem(), time.Millisecond
				}
				overCrashes(t, rng, 12_000, func() *tasks.Job {
					job, err := tasks.Start(t.Context(), log, plan, o)
					require.NoError(t, err)
					return job
				}, func(job *tasks.Job, life int) {
					goals := rand.New(rand.NewPCG(seed, uint64(life)))
					for done := 0; ; {
						r := tasks.Rescale{Stage: "keys", Tasks: 1 + goals.IntN(parts), Batch: goals.IntN(3), Mode: aMode(goals)}
						if r.Mode == rescale.ModeRestart { // refused
							r.Mode = rescale.ModeMove
						}
						if goals.IntN(2) == 0 { // tasks that stay exchange partitions
							r.Owners = make([]int, parts)
							for g, k := range goals.Perm(parts) {
								r.Owners[g] = k % r.Tasks
							}
						}
						if _, err := job.Rescale(t.Context(), r); err != nil {
							t.Logf("after %d rescales: %v", done, err)
							return
						}
						rescaled.Add(1)
						if done++; done == 3 {
							open.Store(true)
						}
					}
				})
				sameRows(t, w.want, lines(t, file))
			})
		}
	})
	t.Log(rescaled.Load(), "rescales")
	require.Greater(t, rescaled.Load(), int64(32), "most jobs ended before their rescales: the test shows nothing")
}
