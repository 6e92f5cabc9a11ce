package tasks_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// TestEnrichment reads orders and customers from the past: every order is joined with the customer
// as of the order's time, run after run, although the few orders are read long before the many
// customers. Without waiting, about nine orders in ten would find no customer.
func TestEnrichment(t *testing.T) {
	orders, customers, runs := 2_000, int64(20_000), 3
	if os.Getenv("TAILRACE_SOAK") != "" {
		orders, customers, runs = 20_000, 200_000, 20
	}
	rng := rand.New(rand.NewPCG(7, 7))
	type change struct{ at, value int64 }
	var tableParts, orderParts [2][]optest.Timed[int64]
	history := map[int64][]change{} // by customer, in the order of time
	put := func(customer, at int64) {
		p := customer % 2
		tableParts[p] = append(tableParts[p], optest.At(at, customer<<32|at))
		history[customer] = append(history[customer], change{at, at})
	}
	for c := range customers {
		put(c, c) // registered
	}
	moved := slices.Clone([]int64(nil))
	for range orders { // some move while orders arrive
		moved = append(moved, customers+rng.Int64N(customers))
	}
	slices.Sort(moved)
	for _, at := range moved {
		put(rng.Int64N(customers), at)
	}
	var want []string
	for i := range orders {
		at, customer := customers+int64(i)*customers/int64(orders), rng.Int64N(customers)
		orderParts[i%2] = append(orderParts[i%2], optest.At(at, customer))
		value := int64(-1)
		for _, ch := range history[customer] {
			if ch.at <= at {
				value = ch.value
			}
		}
		want = append(want, fmt.Sprint(at, " ", customer, " ", value))
	}
	slices.Sort(want)

	for _, protocol := range []string{"fused", "marker"} {
		for run := range runs {
			t.Run(fmt.Sprint(protocol, "/", run), func(t *testing.T) {
				dir := t.TempDir()
				file := filepath.Join(dir, "out")
				job := operators.NewJob("enrich")
				orders := operators.KeyBy(operators.FromSource(job, "orders", optest.Items(0, orderParts[:]...), serde.Int64),
					"by-customer", serde.Int64, func(c *int64) int64 { return *c })
				changes := operators.KeyBy(operators.FromSource(job, "customers", optest.Items(0, tableParts[:]...), serde.Int64),
					"customers-by-id", serde.Int64, func(x *int64) int64 { return *x >> 32 })
				type row struct{ customer, value int64 }
				rows := operators.LeftJoinTable(orders, operators.AsTable(changes), "with", func(k, c, with *int64) row {
					if with == nil {
						return row{customer: *c, value: -1}
					}
					return row{customer: *c, value: *with & (1<<32 - 1)}
				}).With(serde.New("row", func(dst []byte, r *row) []byte {
					return serde.AppendInt64(serde.AppendInt64(dst, r.customer), r.value)
				}, func(d *serde.Reader, r *row) { r.customer, r.value = d.Int64(), d.Int64() }))
				timed := operators.Process(rows, "time", func(c *operators.Context[int64, string]) operators.Handler[row] {
					return operators.Handler[row]{Item: func(r *row) { c.Emit(fmt.Sprint(c.Time(), " ", r.customer, " ", r.value), c.Time()) }}
				})
				operators.ToSink(timed, "out", operators.FileSink(file, func(dst []byte, kv *operators.KV[int64, string]) []byte {
					return append(append(dst, kv.Value...), '\n')
				}, false))
				plan, err := job.Plan()
				require.NoError(t, err)
				log := open(t, dir)
				j, err := tasks.Start(t.Context(), log, plan, tasks.Options{
					Protocol: protocol, Parallelism: 1 + run%3, Groups: 8, CommitInterval: 2 * time.Millisecond, Logger: quiet, Checkpoints: storetest.NewMem(),
				})
				require.NoError(t, err)
				require.NoError(t, j.Wait())
				sameRows(t, want, lines(t, file))
				for _, s := range j.Status() {
					require.Zero(t, s.Late)
				}
				require.NoError(t, log.Close())
			})
		}
	}
}
