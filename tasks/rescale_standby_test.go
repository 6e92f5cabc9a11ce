package tasks_test

import (
	"fmt"
	"path/filepath"
	"slices"
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
	"tailrace.dev/tailrace/tasks/rescale"
)

// A task leaves its stage and comes back, with the state of its givers: the warm copy of its predecessor,
// which has what it had when it left and what others have changed since, is not used.
func TestNewcomerWithStandby(t *testing.T) {
	for _, mode := range []string{rescale.ModeMove, rescale.ModeRebuild} {
		for standbys := range 2 {
			t.Run(fmt.Sprint(mode, standbys), func(t *testing.T) {
				const keys, rounds = 64, 60
				var parts []optest.Timed[int64]
				var want []string
				for i := range int64(keys * rounds) {
					parts = append(parts, optest.At(i, i%keys))
				}
				for r := range rounds {
					for k := range keys {
						want = append(want, fmt.Sprintf("%d %d 1", k, r))
					}
				}
				file := filepath.Join(t.TempDir(), "out")
				g := gate{optest.Items(delay, parts), new(atomic.Bool), keys * rounds / 2}
				job := operators.NewJob("maps")
				in := operators.FromSource(job, "keys", operators.Source[int64](g), serde.Int64)
				byKey := operators.KeyBy(in, "by-key", serde.Int64, func(k *int64) int64 { return *k })
				out := operators.Process(byKey, "maps", func(c *operators.Context[int64, string]) operators.Handler[int64] {
					all := operators.NewMap(c, "all", serde.Int64, serde.Int64)
					count := operators.NewValue(c, "count", serde.Int64)
					return operators.Handler[int64]{Item: func(*int64) {
						n := count.Upsert()
						*all.Upsert(*n)++
						all.Delete(*n - 1)
						c.Emit(fmt.Sprint(*n, " ", len(all.Keys())), c.Time())
						*n++
					}}
				}).With(serde.String)
				operators.ToSink(out, "out", operators.FileSink(file, func(dst []byte, c *operators.KV[int64, string]) []byte {
					return fmt.Appendf(dst, "%d %s\n", c.Key, c.Value)
				}, false))
				plan, err := job.Plan()
				require.NoError(t, err)
				j, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{
					Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Standbys: standbys,
				})
				require.NoError(t, err)
				require.Eventually(t, func() bool { return items(j, "by-key") >= keys*rounds/2 }, 10*time.Second, time.Millisecond)
				for _, n := range []int{1, 2, 1, 2, 1, 2} {
					_, err := j.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: n, Mode: mode, Strategy: "range"})
					require.NoError(t, err)
				}
				g.open.Store(true)
				require.NoError(t, j.Wait())
				got := lines(t, file)
				slices.Sort(want)
				sameRows(t, want, got)
			})
		}
	}
}

// A copy that is made after a rescale is one of the key groups that the task has then: an instance that
// takes it over has no change log to read.
func TestStandbyHasThePresentGroups(t *testing.T) {
	w := newWorld(2, 20_000, 1)
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 10_000}
	file := filepath.Join(t.TempDir(), "out")
	job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), counts(t, file, g), tasks.Options{
		Parallelism: 1, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Standbys: 1,
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return items(job, "by-key") >= 9000 }, 10*time.Second, time.Millisecond)
	_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 2})
	require.NoError(t, err)
	stage := slices.IndexFunc(job.Layout().Plan.Stages, func(s exec.StageSpec) bool { return s.Name == "by-key" })
	require.Eventually(t, func() bool { // once the copy of an instance that began behind the plan has read it
		h, err := job.Fail(t.Context(), stage, 1)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return h.Status().RestoredMS > 0 }, 10*time.Second, time.Millisecond)
		s := h.Status()
		return s.Warm && s.KeyGroups == 4 && s.Loaded+s.Replayed == 0
	}, 10*time.Second, 20*time.Millisecond)
	g.open.Store(true)
	require.NoError(t, job.Wait())
	sameRows(t, w.want, lines(t, file))
}
