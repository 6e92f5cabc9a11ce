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
)

// turning returns items of 2000 keys, one a second of each, in order; behind the first half those of each fourth key are 4 s behind, and
// in order still.
func turning(n int) (items []optest.Timed[int64], want []string) {
	rng := rand.New(rand.NewPCG(1, 1))
	counts := map[[2]int64]int{}
	for i := range n {
		at, key := int64(i)/2, rng.Int64N(2000)
		if from := int64(n) / 4; key%4 == 0 && at > from {
			at = max(from, at-apart)
		}
		items = append(items, optest.At(at, key))
		counts[[2]int64{at / 100, key}]++
	}
	for k, c := range counts {
		want = append(want, fmt.Sprintf("%d %d %d", k[0]*100, k[1], c))
	}
	slices.Sort(want)
	return items, want
}

// apart is in ms.
const apart = 4000

// A stage whose grain is chosen has the clock of the task while its items are in order, and clocks of keys when some keys
// are behind others. A job that is started again has the grain that the log has, and no row is another.
func TestGrainIsChosen(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			items, want := turning(800_000)
			file := filepath.Join(t.TempDir(), "out")
			log := mem.New(mem.Options{})
			half := gate{optest.Items(apart, items), new(atomic.Bool), 400_000}
			most := gate{half, new(atomic.Bool), 790_000}
			o := tasks.Options{Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Protocol: protocol, GrainInterval: 500 * time.Millisecond}
			job, err := tasks.Start(t.Context(), log, autos(t, file, most), o)
			require.NoError(t, err)
			eventually(t, func() bool { return measured(job) == 400_000 })
			eventually(t, func() bool { return job.Grains()[0].Why != "there is no sample yet" })
			st := job.Grains()[0]
			require.Equal(t, "by-key", st.Stage)
			require.Equal(t, "task", st.Grain)
			require.Zero(t, st.Count)
			half.open.Store(true)
			eventually(t, func() bool {
				return job.Grains()[0].Count == 1
			})
			st = job.Grains()[0]
			require.Equal(t, "key", st.Grain)
			require.Equal(t, "key", st.Switches[0].Grain)
			require.Contains(t, st.Switches[0].Why, " ms out of order, those of a key 0 ms")
			require.True(t, job.Grain("by-key").PerKey)
			job.Stop()
			require.ErrorIs(t, job.SwitchGrain(t.Context(), toKey), tasks.ErrEnded)

			job, err = tasks.Start(t.Context(), log, autos(t, file, most), o)
			require.NoError(t, err)
			require.True(t, job.Grain("by-key").PerKey, "the log has it")
			require.Equal(t, "key", job.Grains()[0].Grain)
			most.open.Store(true)
			require.NoError(t, job.Wait())
			sameRows(t, want, lines(t, file))
		})
	}
}

// A delay of the source that holds back the results of the task's clock, for much longer than keys are silent, is a reason
// for clocks of keys: items are in order, and no item is behind another.
func TestGrainIsChosenByDelay(t *testing.T) {
	const n = 200_000
	rng := rand.New(rand.NewPCG(1, 1))
	counts := map[[2]int64]int{}
	var items []optest.Timed[int64]
	for i := range int64(n) {
		at, key := i/40, rng.Int64N(2000)
		items = append(items, optest.At(at, key))
		counts[[2]int64{at / 100, key}]++
	}
	var want []string
	for k, c := range counts {
		want = append(want, fmt.Sprintf("%d %d %d", k[0]*100, k[1], c))
	}
	slices.Sort(want)
	file := filepath.Join(t.TempDir(), "out")
	most := gate{optest.Items(apart, items), new(atomic.Bool), n - 1000}
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), autos(t, file, most), tasks.Options{
		Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, GrainInterval: time.Second, // of less a slow machine has too few samples
	})
	require.NoError(t, err)
	eventually(t, func() bool { return job.Grains()[0].Count == 1 })
	st := job.Grains()[0]
	require.Equal(t, "key", st.Grain)
	require.Contains(t, st.Switches[0].Why, "the task's clock holds results back by 4096 ms")
	most.open.Store(true)
	require.NoError(t, job.Wait())
	sameRows(t, want, lines(t, file))
}

// measured is how many items the stage has processed as far as its commits tell.
func measured(job *tasks.Job) (n uint64) {
	for _, s := range job.Status() {
		if s.Stage == "by-key" && s.Measured != nil {
			n += s.Measured.Task.Items()
		}
	}
	return n
}

// Partial results are measured as items are: a stage that gets them may have its grain chosen, too.
func TestPartialsAreMeasured(t *testing.T) {
	job := operators.NewJob("partials")
	in := operators.FromSource(job, "keys", optest.Items(0, []optest.Timed[int64]{optest.At(int64(0), int64(1)), optest.At(int64(50), int64(2)), optest.At(int64(120), int64(1))}), serde.Int64)
	panes := operators.PreAggregate(in, "by-key", serde.Int64, func(k *int64) int64 { return *k }, operators.Tumbling(100*time.Millisecond), operators.Counting[int64](), operators.WatermarkPer(operators.Auto, 0))
	operators.ToSink(operators.CombineWindows(panes), "out", operators.FileSink(filepath.Join(t.TempDir(), "out"), func(dst []byte, c *operators.KV[int64, operators.Windowed[int64]]) []byte {
		return fmt.Appendf(dst, "%d %d %d\n", c.Value.Start, c.Key, c.Value.Value)
	}, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	run, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{Parallelism: 1, Groups: 1, Logger: quiet})
	require.NoError(t, err)
	require.NoError(t, run.Wait())
	require.EqualValues(t, 3, measured(run))
}

// A job that is told so chooses no grain.
func TestGrainIsNotChosen(t *testing.T) {
	items, want := turning(2000)
	file := filepath.Join(t.TempDir(), "out")
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), autos(t, file, optest.Items(apart, items)), tasks.Options{Parallelism: 1, Groups: 8, Logger: quiet, GrainInterval: -1})
	require.NoError(t, err)
	require.Empty(t, job.Grains())
	require.NoError(t, job.Wait())
	sameRows(t, want, lines(t, file))
}
