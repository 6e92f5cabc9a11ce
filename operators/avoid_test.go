package operators_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// An event timer and a timer of the wall clock may have one key and one time. To avoid one
// of them is not to avoid the other.
func TestTimersOfTwoClocksAreNamedApart(t *testing.T) {
	job := operators.NewJob("clocks")
	keyed := operators.KeyBy(operators.FromSource(job, "src", optest.Items[int64](0, nil), serde.Int64), "in", serde.Int64, func(v *int64) int64 { return *v })
	var fired []string
	timed := operators.Process(keyed, "both", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
		return operators.Handler[int64]{
			Item: func(*int64) {
				c.SetEventTimer(50)
				c.SetWallTimer(50)
			},
			Timers: operators.Timers{
				OnEvent: func(int64) { fired = append(fired, "event") },
				OnWall:  func(int64) { fired = append(fired, "wall") },
			},
		}
	})
	operators.ToSink(timed.With(serde.Int64), "out", operators.FuncSink(func(*operators.Batch[operators.KV[int64, int64]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	rt := &benchRuntime{outs: []*exec.Output{exec.NewOutput(64)}}
	c, err := plan.Stages[1].New(rt)
	require.NoError(t, err)
	item := serde.AppendInt64(serde.AppendInt64(serde.AppendInt64(nil, 10), 7), 7) // time, key, value
	hand := func() {
		_, err := c.Process(&exec.In{Group: 7, Items: 1}, item, exec.Budget{})
		require.NoError(t, err)
	}
	hand()
	_, err = c.Tick(60, exec.Budget{})
	require.NoError(t, err)
	text, wall := c.Timer()
	require.Equal(t, []string{"wall"}, fired)
	require.Contains(t, text, `process function "both", wall timer of key "7" at 50`)

	did, err := c.Advance(exec.Bounds{Time: 60}, exec.Budget{Avoid: wall})
	require.NoError(t, err)
	require.False(t, did.Avoided)
	require.Equal(t, []string{"wall", "event"}, fired)
	hand()
	did, err = c.Tick(70, exec.Budget{Avoid: wall})
	require.NoError(t, err)
	require.True(t, did.Avoided)
	require.Equal(t, []string{"wall", "event"}, fired)
}

// The first item of a key is skipped: its time has nothing to emit.
func TestAggregateInOrderPassesOver(t *testing.T) {
	fails := func(acc *int64, v *int64) {
		if *v == 13 {
			panic("13")
		}
		*acc += *v
	}
	for name, build := range map[string]func(in operators.KeyedStream[int64, int64]) operators.Table[int64, int64]{
		"aggregate": func(in operators.KeyedStream[int64, int64]) operators.Table[int64, int64] {
			return operators.Aggregate(in, operators.Aggregator[int64, int64]{Add: func(acc, v *int64, _ int64) { fails(acc, v) }}, operators.InOrder())
		},
		"updates": func(in operators.KeyedStream[int64, int64]) operators.Table[int64, int64] {
			updates := operators.MapValues(in, func(_, v *int64) operators.Update[int64] { return operators.Update[int64]{Value: *v} })
			return operators.AggregateUpdates(updates.With(operators.UpdateSerde(serde.Int64)), operators.Subtractor[int64, int64]{Add: fails, Subtract: fails})
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := operators.NewJob("passed over")
			in := operators.KeyBy(operators.FromSource(job, "src", optest.Items[int64](0, nil), serde.Int64), "in", serde.Int64, func(v *int64) int64 { return *v % 10 })
			operators.ToSink(build(in), "out", operators.FuncSink(func(*operators.Batch[operators.Change[int64, int64]]) error { return nil }))
			plan, err := job.Plan()
			require.NoError(t, err)
			var c exec.Chain
			var rt *benchRuntime
			begin := func() { // a task with an item of the value 13 that waits
				rt = &benchRuntime{outs: []*exec.Output{exec.NewOutput(64)}}
				c, err = plan.Stages[1].New(rt)
				require.NoError(t, err)
				item := serde.AppendInt64(serde.AppendInt64(serde.AppendInt64(nil, 10), 3), 13) // time, key, value
				_, err = c.Process(&exec.In{Group: 7, Items: 1}, item, exec.Budget{})
				require.NoError(t, err)
			}
			begin()
			require.PanicsWithValue(t, "13", func() { _, _ = c.Advance(exec.Bounds{Time: 60}, exec.Budget{}) })
			_, name := c.Timer()
			begin()
			did, err := c.Advance(exec.Bounds{Time: 60}, exec.Budget{Avoid: name})
			require.NoError(t, err)
			require.True(t, did.Avoided)
			require.NotPanics(t, func() { did, err = c.Advance(exec.Bounds{Time: 60}, exec.Budget{}) })
			require.NoError(t, err)
			require.True(t, did.All)
			require.Zero(t, rt.outs[0].Total())
		})
	}
}
