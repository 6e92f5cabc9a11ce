package tasks_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
)

// keptAndBusy is a job that counts keys and keeps them: a task has three of four of them, and the other one has so many more items of
// one key that both have as many items.
func keptAndBusy(t *testing.T, n int, due func(k int) int64, file string) (plan *operators.Plan, want []string) {
	owner := func(key int64) int { return uneven()[exec.GroupOf(exec.HashKey(serde.Int64.Append(nil, &key)), 16)] }
	busy := int64(0)
	for owner(busy) == 0 {
		busy++
	}
	var items []optest.Timed[int64]
	counts := map[int64]int{}
	for i := range n {
		key := busy
		if i%3 > 0 {
			key = int64(i*7919) % 2003
		}
		counts[key]++
		items = append(items, optest.At(int64(i), key))
		want = append(want, fmt.Sprintf("%d %d", key, counts[key]))
	}
	slices.Sort(want)
	job := operators.NewJob("kept")
	keys := operators.FromSource(job, "keys", scheduled{optest.Items(0, items), due}, serde.Int64)
	byKey := operators.KeyBy(keys, "by-key", serde.Int64, func(k *int64) int64 { return *k })
	counted := operators.Process(byKey, "count", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
		n := operators.NewValue(c, "n", serde.Int64)
		return operators.Handler[int64]{Item: func(*int64) {
			v := n.Upsert()
			*v++
			c.Emit(*v, c.Time())
		}}
	}).With(serde.Int64)
	operators.ToSink(counted, "out", operators.FileSink(file, func(dst []byte, c *operators.KV[int64, int64]) []byte {
		return fmt.Appendf(dst, "%d %d\n", c.Key, c.Value)
	}, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan, want
}

// The tasks have as many items, and one has three times the other's keys: least-count leaves them where they are, and least-key
// does not. A planner of the user's has the same numbers of keys.
func TestBalanceByKeys(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		t.Run(protocol, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out")
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now().UnixMilli()
				plan, want := keptAndBusy(t, 60_000, func(k int) int64 { return begin + int64(k)/2 }, file)
				job, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{Parallelism: 2, Groups: 16, Logger: quiet, Protocol: protocol})
				require.NoError(t, err)
				_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 2, Owners: uneven()})
				require.NoError(t, err)
				below := tasks.BalanceWhen{Below: 0.9}
				require.NoError(t, job.Balance(tasks.Balance{Stage: "by-key", Dispatch: "least-count", When: below}))
				<-time.After(8 * time.Second)
				s := job.Balanced()[0]
				require.Zero(t, s.Switches, "%+v", s)
				require.Greater(t, s.Degree, 0.9)

				require.NoError(t, job.Balance(tasks.Balance{Stage: "by-key", Dispatch: "least-key", When: below}))
				<-time.After(8 * time.Second)
				s = job.Balanced()[0]
				require.Equal(t, 1, s.Switches, "%+v", s)
				require.InDelta(t, 1.0/3, s.Newest.Degree, 0.1)
				require.Greater(t, s.Degree, 0.9)
				require.Equal(t, s.Degree, s.Became)

				var keys []int64 // written by one goroutine, read when it is durably blocked
				own := func(l *tasks.BalanceLoad) ([]int, error) {
					keys = l.Keys
					return l.Owners, nil
				}
				require.NoError(t, job.Balance(tasks.Balance{Stage: "by-key", Dispatch: tasks.BalanceOwn, Planner: own, When: tasks.BalanceWhen{Every: 1000}}))
				<-time.After(4 * time.Second)
				synctest.Wait()
				sum := int64(0)
				for _, n := range keys {
					sum += n
				}
				require.EqualValues(t, 2003, sum, "%v", keys)
				require.NoError(t, job.Wait())
				sameRows(t, want, lines(t, file))
			})
		})
	}
}
