//go:build !nokeyed

package tasks_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/probe"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
)

// The metrics of a stage are what its balancer has measured and done. Three key groups are too coarse for two tasks, so that
// slots are used. Before there are items there is no degree.
func TestBalanceMetrics(t *testing.T) {
	for _, dispatch := range []string{"least-count", "hash"} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now().Add(3 * time.Second).UnixMilli()
			var items []optest.Timed[int64]
			for i := range int64(40_000) {
				items = append(items, optest.At(i, i*7919%251))
			}
			job := operators.NewJob("job")
			keys := operators.FromSource(job, "keys", scheduled{optest.Items(0, items), func(k int) int64 { return begin + int64(k)/2 }}, serde.Int64)
			counted := operators.Process(operators.KeyBy(keys, "by-key", serde.Int64, func(k *int64) int64 { return *k }), "count", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
				seen := operators.NewMap(c, "seen", serde.Int64, serde.Int64)
				return operators.Handler[int64]{Item: func(*int64) { *seen.Upsert(0)++ }}
			}).With(serde.Int64)
			operators.ToSink(counted, "out", operators.FuncSink(func(*operators.Batch[operators.KV[int64, int64]]) error { return nil }))
			plan, err := job.Plan()
			require.NoError(t, err)
			running, err := tasks.Start(t.Context(), mem.New(mem.Options{}), plan, tasks.Options{Parallelism: 2, Groups: 3, Slots: 4, Logger: quiet})
			require.NoError(t, err)
			require.NoError(t, running.Reroute(t.Context(), tasks.Reroute{Stage: "by-key", Places: []route.Place{{Part: route.Part{Group: 1, N: 1}, Slot: 3}}}))
			require.NoError(t, running.Balance(tasks.Balance{Stage: "by-key", Dispatch: dispatch, When: tasks.BalanceWhen{Below: 0.95, Quiet: 1000}}))
			served := func() map[string]float64 {
				r := prometheus.NewRegistry()
				probe.Labelled(r, "tailrace_", []string{"stage"}, func(emit func(string, float64, ...string)) {
					for _, b := range running.Balanced() {
						for name, v := range b.Metrics() {
							emit(name, v, b.Stage)
						}
					}
				})
				families, err := r.Gather()
				require.NoError(t, err)
				all := map[string]float64{}
				for _, f := range families {
					require.NotEmpty(t, f.GetHelp(), f.GetName())
					all[f.GetName()] = f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetCounter().GetValue()
				}
				return all
			}
			synctest.Wait()
			none := map[string]float64{"tailrace_balance_steps_total": 0, "tailrace_balance_moves_total": 0, "tailrace_slots": 4, "tailrace_slots_used": 1, "tailrace_routing_epoch": 1}
			require.Equal(t, none, served(), "there is no reading yet")
			time.Sleep(2500 * time.Millisecond)
			require.Equal(t, none, served(), "no items came")
			time.Sleep(15 * time.Second)
			got, b := served(), running.Balanced()[0]
			require.Len(t, got, 6)
			require.Equal(t, b.Degree, got["tailrace_balance_degree"])
			if dispatch == "hash" { // the owners of a new job, and no other table
				none["tailrace_balance_degree"] = b.Degree
				require.Equal(t, none, got)
			} else {
				require.Greater(t, b.Degree, 0.9, "%+v", b)
				require.Equal(t, float64(b.Switches), got["tailrace_balance_steps_total"])
				require.Equal(t, float64(b.MovedGroups), got["tailrace_balance_moves_total"])
				require.Greater(t, got["tailrace_routing_epoch"], 1.0, "%+v", b)
				require.Equal(t, float64(b.SlotsUsed), got["tailrace_slots_used"])
				require.Positive(t, b.SlotsUsed)
			}
			require.NoError(t, running.Wait())
		})
	}
}
