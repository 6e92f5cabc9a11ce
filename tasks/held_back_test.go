package tasks_test

import (
	"context"
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
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// Partial results are held back until the commit, and one item in fifty comes seconds too late and
// must not count: both survive when the job is stopped at random moments and resumes.
func TestHeldBackAndLateOverCrashes(t *testing.T) {
	const n = 120_000
	items, counts := make([]optest.Timed[int64], 0, n), map[[2]int64]int{}
	rng := rand.New(rand.NewPCG(11, 1))
	for i := range int64(n) {
		key := rng.Int64N(10)
		if i > 8_000 && i%50 == 0 { // many commits ago
			items = append(items, optest.At(i-8_000, key))
			continue
		}
		items = append(items, optest.At(i, key))
		counts[[2]int64{i / 100, key}]++
	}
	var want []string
	for k, c := range counts {
		want = append(want, fmt.Sprintf("%d %d %d", k[0]*100, k[1], c))
	}
	slices.Sort(want)

	plan := func(file string) *operators.Plan {
		job := operators.NewJob("held")
		keys := operators.FromSource(job, "keys", optest.Items(0, items), serde.Int64)
		panes := operators.PreAggregate(keys, "panes", serde.Int64, func(k *int64) int64 { return *k },
			operators.Tumbling(100*time.Millisecond), operators.Counting[int64]())
		operators.ToSink(operators.CombineWindows(panes), "out", operators.FileSink(file, func(dst []byte, c *operators.KV[int64, operators.Windowed[int64]]) []byte {
			return fmt.Appendf(dst, "%d %d %d\n", c.Value.Start, c.Key, c.Value.Value)
		}, false))
		p, err := job.Plan()
		require.NoError(t, err)
		return p
	}
	for _, protocol := range []string{"fused", "marker", "txn"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(5, 3))
			dir := t.TempDir()
			file := filepath.Join(dir, "out")
			o := tasks.Options{
				Protocol: protocol, Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, CommitBytes: 2 << 10, Logger: quiet,
				TrimBytes: 1, TrimInterval: time.Millisecond, SnapshotInterval: time.Millisecond,
			}
			crashes := 0
			for done := false; !done; {
				log := open(t, dir)
				var err error
				o.Checkpoints, err = checkpoint.OpenPebble(filepath.Join(dir, "checkpoints"))
				require.NoError(t, err)
				job, err := tasks.Start(t.Context(), log, plan(file), o)
				require.NoError(t, err)
				select {
				case <-time.After(time.Duration(2+rng.IntN(20)) * time.Millisecond):
					job.Stop()
				case <-job.Done():
				}
				if done = job.Wait() == nil; !done {
					require.ErrorIs(t, job.Wait(), context.Canceled)
					crashes++
				}
				require.NoError(t, o.Checkpoints.Close())
				require.NoError(t, log.Close())
			}
			require.NotZero(t, crashes)
			sameRows(t, want, lines(t, file))
		})
	}
}

// At a savepoint the partitions of a source have progressed unequally. A job that starts from it
// has the watermark of the partition that is furthest behind, whatever its parallelism: nothing is
// late.
func TestSavepointOfUnequalPartitions(t *testing.T) {
	var parts [2][]optest.Timed[int64]
	var want []string
	for i := range int64(20_000) {
		parts[i%2] = append(parts[i%2], optest.At(i, i%3))
	}
	byKey := map[[2]int64]int{}
	for _, p := range parts {
		for _, x := range p {
			byKey[[2]int64{x.Time / 100, x.Value}]++
		}
	}
	for k, c := range byKey {
		want = append(want, fmt.Sprintf("%d %d %d", k[0]*100, k[1], c))
	}
	slices.Sort(want)
	for i := range 4 {
		limits, parallelism := [][2]uint64{{9_000, 500}, {500, 9_000}}[i%2], 1+i/2
		t.Run(fmt.Sprint(limits, parallelism), func(t *testing.T) {
			dir := t.TempDir()
			file, copied := filepath.Join(dir, "out"), filepath.Join(dir, "copied")
			store, log := storetest.NewMem(), mem.New(mem.Options{})
			g := unequal{gate{optest.Items(0, parts[:]...), new(atomic.Bool), 0}, limits}
			o := tasks.Options{Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Checkpoints: store}
			job, err := tasks.Start(t.Context(), log, counts(t, file, g), o)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return items(job, "keys") >= 9_000+500 }, time.Minute, time.Millisecond)
			m, err := job.Savepoint(t.Context(), "one", true)
			require.NoError(t, err)
			require.ErrorIs(t, job.Wait(), tasks.ErrDrained)
			upTo(t, m, file, copied)

			o.Name, o.From, o.Parallelism = "second", "one", parallelism
			job, err = tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, copied, optest.Items(0, parts[:]...)), o)
			require.NoError(t, err)
			require.NoError(t, job.Wait())
			sameRows(t, want, lines(t, copied))
			for _, s := range job.Status() {
				require.Zero(t, s.Late)
			}
		})
	}
}

// unequal waits after a given number of items of each partition.
type unequal struct {
	gate
	limits [2]uint64
}

func (u unequal) Open(p int) (operators.Partition[int64], error) {
	u.limit = u.limits[p]
	return u.gate.Open(p)
}
