package tasks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// TestTables runs an outer join, a join with a broadcast table, a join by a foreign key and a
// table by groups with the runtime, and kills the job: all their answers are functions of the
// items, so the rows are those of optest, whatever the protocol and the parallelism.
func TestTables(t *testing.T) {
	const disorder = 20
	rng := rand.New(rand.NewPCG(3, 3))
	draw := func(n int) (parts [2][]optest.Timed[int64]) { // key and value; value 0 deletes
		for i := range n {
			at, key, value := int64(i)*3-rng.Int64N(disorder), rng.Int64N(40), rng.Int64N(8)
			parts[key%2] = append(parts[key%2], optest.At(at, key<<8|value))
		}
		return parts
	}
	a, b := draw(1500), draw(1500)
	build := func(job *operators.Job) operators.Stream[string] {
		key := func(x *int64) int64 { return *x >> 8 }
		left := operators.KeyBy(operators.FromSource(job, "a", optest.Items(disorder, a[:]...), serde.Int64), "left", serde.Int64, key)
		right := operators.KeyBy(operators.FromSource(job, "b", optest.Items(disorder, b[:]...), serde.Int64), "right", serde.Int64, key)
		value := func(_, x *int64) (int64, bool) { return *x & 255, *x&255 > 0 }
		// In stages of their own: a stage that the left one feeds cannot feed that one.
		table := func(name string) operators.Table[int64, int64] {
			source := operators.FromSource(job, "of "+name, optest.Items(disorder, b[:]...), serde.Int64)
			return operators.AsTableOf(operators.KeyBy(source, name, serde.Int64, key), value)
		}
		lt := operators.AsTableOf(left, value)
		row := func(k, l, r *int64) string {
			text := fmt.Sprint(*k)
			for _, x := range []*int64{l, r} {
				if x == nil {
					text += " -"
				} else {
					text += fmt.Sprint(" ", *x)
				}
			}
			return text
		}
		stream := func(what string, ks operators.KeyedStream[int64, string]) operators.Stream[string] {
			return operators.Map(ks, func(kv *operators.KV[int64, string]) string { return what + kv.Value })
		}
		modulo := func(_, x *int64) int64 { return *x % 5 }
		groups := operators.AggregateUpdates(operators.GroupTable(lt, "groups", serde.Int64, modulo), operators.Subtractor[int64, int64]{
			Add: func(acc, x *int64) { *acc += *x }, Subtract: func(acc, x *int64) { *acc -= *x },
		})
		foreign := operators.LeftJoinForeign(lt, table("right-of-foreign"), "foreign", modulo, row)
		return operators.Merge("all",
			operators.Map(groups, func(c *operators.Change[int64, int64]) string { return fmt.Sprint("group ", c.Key, c.Value, c.Deleted) }),
			operators.Map(foreign, func(c *operators.Change[int64, string]) string {
				return fmt.Sprint("foreign ", c.Key, " ", c.Value, c.Deleted)
			}),
			stream("outer ", operators.OuterJoinStreams(left, right, "outer", 10*time.Millisecond, row)),
			stream("broadcast ", operators.LeftJoinBroadcast(left, table("right-of-broadcast"), "broadcast", modulo, row)))
	}
	job := operators.NewJob("tables")
	out := optest.Collect[string](nil)
	operators.ToSink(build(job), "out", out)
	plan, err := job.Plan()
	require.NoError(t, err)
	_, err = optest.Run(plan, optest.Options{})
	require.NoError(t, err)
	want := slices.Sorted(slices.Values(out.Rows))

	kills := 3
	if os.Getenv("TAILRACE_SOAK") != "" {
		kills = 100
	}
	for i, protocol := range []string{"fused", "marker", "txn", "aligned"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(i), 5))
			job, out := operators.NewJob("tables"), optest.Collect[string](nil)
			operators.ToSink(build(job), "out", out)
			plan, err := job.Plan()
			require.NoError(t, err)
			log := mem.New(mem.Options{})
			o := tasks.Options{
				Protocol: protocol, Parallelism: 1 + i%3, Groups: 4, CommitInterval: time.Millisecond, Logger: quiet,
				Checkpoints: storetest.NewMem(), SnapshotInterval: time.Millisecond,
			}
			run := func(log sharedlog.Log) func(ctx context.Context) error {
				return func(ctx context.Context) error { return tasks.Run(ctx, log, plan, o) }
			}
			for range kills {
				d := newDying(log, 10+rng.IntN(200))
				require.NoError(t, live(t, d, func() error { return nil }, run(d)))
			}
			require.NoError(t, run(log)(t.Context()))
			sameRows(t, want, slices.Sorted(slices.Values(out.Rows)))
		})
	}
}
