package operators_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// tablesOf builds a job whose one keyed stage has what build puts there.
func tablesOf(t *testing.T, build func(in operators.KeyedStream[string, hit]) operators.Flow[string]) []exec.TableSpec {
	job := operators.NewJob("uid")
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde), "k", serde.String, byKey)
	operators.ToSink(build(in), "out", nothing[string]())
	plan, err := job.Plan()
	require.NoError(t, err)
	b, err := json.Marshal(plan)
	require.NoError(t, err)
	var read operators.Plan
	require.NoError(t, json.Unmarshal(b, &read))
	require.Equal(t, "k", read.Stages[1].Name)
	return read.Stages[1].Tables
}

// A plan lists its tables. What is put before an operator does not rename them.
func TestTablesKeepTheirNames(t *testing.T) {
	all := func(before func(operators.KeyedStream[string, hit]) operators.KeyedStream[string, hit]) []exec.TableSpec {
		return tablesOf(t, func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
			in = before(in)
			return operators.Merge("all",
				windowRows(operators.CountWindows(in, operators.Tumbling(time.Second))),
				windowRows(operators.CountWindows(in, operators.Sliding(time.Second, 10*time.Millisecond)).Uid("often")),
				windowRows(operators.AggregateSessions(in, "visits", time.Second, summing())),
				operators.Map(operators.Count(in), func(c *operators.Change[string, int64]) string { return c.Key }),
				operators.Map(operators.Reduce(in, func(acc, v *hit) {}).Uid("last"), func(c *operators.Change[string, hit]) string { return c.Key }))
		})
	}
	plain := all(func(in operators.KeyedStream[string, hit]) operators.KeyedStream[string, hit] { return in })
	require.Equal(t, []exec.TableSpec{
		{Name: "window.fired", Type: "map uint8 → fired up to", Operator: "window", Kind: "window"},
		{Name: "window", Type: "tumbling 1s windows string → int64", Operator: "window", Kind: "window"},
		{Name: "often.fired", Type: "map uint8 → fired up to", Operator: "often"},
		{Name: "often", Type: "sliding 1s every 10ms windows string → int64", Operator: "often"},
		{Name: "visits.event-timers", Type: "map pane of string → unit", Operator: "visits"},
		{Name: "visits.wall-timers", Type: "map pane of string → unit", Operator: "visits"},
		{Name: "visits.sessions", Type: "map string → []session of int64", Operator: "visits"},
		{Name: "aggregate", Type: "map string → aggregate of int64", Operator: "aggregate", Kind: "aggregate"},
		{Name: "last", Type: "map string → aggregate of reduced hit", Operator: "last"},
	}, plain)
	added := all(func(in operators.KeyedStream[string, hit]) operators.KeyedStream[string, hit] {
		some := operators.FilterValues(in, func(*string, *hit) bool { return true })
		return operators.Process(some, "added", func(c *operators.Context[string, hit]) operators.Handler[hit] {
			n := operators.NewValue(c, "n", serde.Int64)
			return operators.Handler[hit]{Item: func(h *hit) {
				*n.Upsert()++
				c.Emit(*h, c.Time())
			}}
		}).With(hitSerde)
	})
	require.Equal(t, "added.n", added[2].Name)
	require.Equal(t, plain, added[3:])
}

// Two operators of one kind in a stage are numbered; a Uid is given once in a stage.
func TestUids(t *testing.T) {
	count := func(in operators.KeyedStream[string, hit]) operators.KeyedStream[string, operators.Windowed[int64]] {
		return operators.CountWindows(in, operators.Tumbling(time.Second))
	}
	names := func(specs []exec.TableSpec) (names []string) {
		for _, s := range specs {
			names = append(names, s.Name)
		}
		return names
	}
	require.Equal(t, []string{"window.fired", "window", "window-2.fired", "window-2"}, names(tablesOf(t, func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
		return operators.Merge("both", windowRows(count(in)), windowRows(count(in)))
	})))
	require.Equal(t, []string{"window.fired", "window", "window-2.fired", "window-2"}, names(tablesOf(t, func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
		return operators.Merge("both", windowRows(count(in).Uid("window")), windowRows(count(in)))
	})))

	job := operators.NewJob("uids")
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde), "k", serde.String, byKey)
	in.Uid("nothing")
	count(in).Uid("twice")
	count(in).Uid("twice")
	operators.ToSink(operators.Map(in, showPair), "out", nothing[string]())
	_, err := job.Plan()
	require.ErrorContains(t, err, `Uid "nothing": the operator that it was given has no state`)
	require.ErrorContains(t, err, `stage "k": two operators with state are named "twice"`)
}

func showPair(kv *operators.KV[string, hit]) string { return fmt.Sprint(kv.Key, kv.Value.N) }
