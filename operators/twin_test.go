package operators_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// twins are the operators whose state is more than a value a key.
var twins = map[string]func(left, right operators.KeyedStream[string, hit]) operators.Flow[string]{
	"tumbling": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return windowRows(operators.AggregateWindows(in, operators.Tumbling(10*time.Millisecond), summing()))
	},
	"sliding": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return windowRows(operators.AggregateWindows(in, operators.Sliding(10*time.Millisecond, 4*time.Millisecond), summing()))
	},
	"sliding, late items": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return windowRows(operators.AggregateWindows(in, operators.Sliding(9*time.Millisecond, 3*time.Millisecond), summing(), operators.Lateness(11*time.Millisecond)))
	},
	"sliding, each late item": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return windowRows(operators.AggregateWindows(in, operators.Sliding(9*time.Millisecond, 3*time.Millisecond), summing(), operators.Lateness(11*time.Millisecond), operators.EachLate()))
	},
	"with gaps, late items": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return windowRows(operators.AggregateWindows(in, operators.Sliding(5*time.Millisecond, 7*time.Millisecond), summing(), operators.Lateness(20*time.Millisecond)))
	},
	"eager": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return windowRows(operators.AggregateWindows(in, operators.Sliding(10*time.Millisecond, 5*time.Millisecond), summing(),
			operators.Emit(operators.Eager), operators.Lateness(3*time.Millisecond)))
	},
	"items of windows": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return windowRows(applySums(in, operators.Tumbling(10*time.Millisecond), 10))
	},
	"items of sliding windows, late items": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return windowRows(applySums(in, operators.Sliding(9*time.Millisecond, 3*time.Millisecond), 9, operators.Lateness(11*time.Millisecond)))
	},
	"items of windows with gaps, each late item": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return windowRows(applySums(in, operators.Sliding(5*time.Millisecond, 7*time.Millisecond), 5, operators.Lateness(20*time.Millisecond), operators.EachLate()))
	},
	"sessions": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return windowRows(operators.AggregateSessions(in, "sessions", 5*time.Millisecond, summing(), operators.Lateness(4*time.Millisecond)))
	},
	"updates of sessions": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		sums := operators.AggregateSessions(in, "sessions", 5*time.Millisecond, summing(), operators.Lateness(4*time.Millisecond))
		return operators.Map(operators.WindowUpdates(sums, "updates"), showUpdate)
	},
	"updates of windows": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		sums := operators.AggregateWindows(in, operators.Sliding(10*time.Millisecond, 5*time.Millisecond), summing(), operators.Emit(operators.Eager))
		return operators.Map(operators.WindowUpdates(sums, "updates"), showUpdate)
	},
	"lists that end": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return values(listRows(in, operators.TTL(9*time.Millisecond)))
	},
	"sliding count windows": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return operators.Map(operators.AggregateLast(in, "last", 6, 4, listing(), operators.InOrder()), countedRow)
	},
	"join of streams": func(left, right operators.KeyedStream[string, hit]) operators.Flow[string] {
		return values(operators.JoinStreams(left, right, "join", 12*time.Millisecond, func(k *string, l, r *hit) string { return pairRow(*k, l, r) }))
	},
	"join for ever": func(left, right operators.KeyedStream[string, hit]) operators.Flow[string] {
		return values(operators.JoinStreams(left, right, "join", operators.Forever, func(k *string, l, r *hit) string { return pairRow(*k, l, r) }))
	},
	"join of windows": func(left, right operators.KeyedStream[string, hit]) operators.Flow[string] {
		return values(operators.JoinWindows(left, right, "join", operators.Sliding(10*time.Millisecond, 5*time.Millisecond),
			func(k *string, _, end int64, l, r *hit) string { return fmt.Sprint(end, pairRow(*k, l, r)) }))
	},
	"outer join of streams": func(left, right operators.KeyedStream[string, hit]) operators.Flow[string] {
		return values(operators.OuterJoinStreams(left, right, "join", 12*time.Millisecond, outerRow, operators.Grace(5*time.Millisecond)))
	},
	"join with a table": func(left, right operators.KeyedStream[string, hit]) operators.Flow[string] {
		table := operators.FilterTable(operators.AsTable(right), positive)
		return values(operators.LeftJoinTable(left, table, "join", withRow))
	},
	"join of tables": func(left, right operators.KeyedStream[string, hit]) operators.Flow[string] {
		joined := operators.JoinTables(operators.FilterTable(operators.AsTable(left), positive), operators.AsTable(right), "join", withRow)
		return operators.Map(joined, func(c *operators.Change[string, string]) string { return fmt.Sprint(c.Key, c.Value, c.Deleted) })
	},
	"aggregate of updates": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		byN := operators.GroupTable(operators.AsTableOf(in, alive), "parity", serde.String, parity)
		return operators.Map(operators.AggregateUpdates(byN, totals()), totalRow)
	},
	"join by a foreign key": func(left, right operators.KeyedStream[string, hit]) operators.Flow[string] {
		joined := operators.LeftJoinForeign(operators.AsTableOf(left, alive), operators.AsTableOf(right, alive), "join", refers, foreignRow)
		return operators.Map(joined, changeRow)
	},
	"join with a broadcast table": func(left, right operators.KeyedStream[string, hit]) operators.Flow[string] {
		table := operators.FilterTable(operators.AsTable(right), positive)
		return values(operators.LeftJoinBroadcast(left, table, "join", another, withRow))
	},
	"aggregate in order": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		all := operators.Aggregate(in, operators.Aggregator[hit, string]{Add: func(acc *string, h *hit, _ int64) { *acc += fmt.Sprint(h.N) }}, operators.InOrder())
		return operators.Map(all, func(c *operators.Change[string, string]) string { return c.Key + c.Value })
	},
	"wall timers": func(in, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return values(operators.Process(in, "alarms", func(c *operators.Context[string, string]) operators.Handler[hit] {
			n := operators.NewValue(c, "n", serde.Int64)
			return operators.Handler[hit]{
				Item: func(h *hit) {
					*n.Upsert() += h.N
					c.SetWallTimer(c.Now() + 20*h.N) // some of them in the past
					c.DeleteWallTimer(c.Now() + 1)
				},
				Timers: operators.Timers{OnWall: func(t int64) { c.Emit(fmt.Sprint(c.Key(), t, *n.Get()), t) }},
			}
		}))
	},
}

func windowRows(ks operators.KeyedStream[string, operators.Windowed[int64]]) operators.Flow[string] {
	return operators.Map(ks, func(kv *operators.KV[string, operators.Windowed[int64]]) string {
		return fmt.Sprintf("%s [%d,%d) %d", kv.Key, kv.Value.Start, kv.Value.End, kv.Value.Value)
	})
}

// Where state lives changes nothing: run in memory and in homes that have hardly any
// room, with the same seed, a job makes the same outputs and the same changes, byte for
// byte and commit by commit, through crashes, interruptions and late items. At the end
// the homes are as empty as the tables.
func TestHomesAreMemory(t *testing.T) {
	for name, build := range twins {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				a, b := drawHits(t, "left", 40), drawHits(t, "right", 40)
				delay := rapid.SampledFrom([]int64{disorder, 1}).Draw(t, "delay") // 1: some are late
				grain := operators.WatermarkPer(operators.Task, 0)
				if n := rapid.SampledFrom([]int{-1, 0, 1, 4}).Draw(t, "clocks"); n >= 0 {
					per := operators.Key
					if n > 0 {
						per = operators.Keys(n)
					}
					grain = operators.WatermarkPer(per, time.Duration(rapid.Int64Range(0, disorder).Draw(t, "of the key"))*time.Millisecond)
				}
				o := drawOptions(t)
				o.Start = 1_000
				run := func(where optest.Place) (optest.Report, []string) {
					job := operators.NewJob("twins")
					left := operators.KeyBy(operators.FromSource(job, "a", optest.Items(delay, a), hitSerde), "l", serde.String, byKey, grain)
					right := operators.KeyBy(operators.FromSource(job, "b", optest.Items(delay, b), hitSerde), "r", serde.String, byKey, grain)
					out := optest.Collect(func(s *string) string { return string([]byte(*s)) })
					operators.ToSink(build(left, right), "out", out)
					// Who takes one side only leaves the other to a sink.
					rest := operators.Map(right, func(kv *operators.KV[string, hit]) int64 { return kv.Value.N })
					operators.ToSink(rest, "rest", optest.Collect[int64](nil))
					plan, err := job.Plan()
					require.NoError(t, err)
					o := o
					o.State = where
					report, err := optest.Run(plan, o)
					require.NoError(t, err)
					return report, out.Rows
				}
				memory, rows := run(optest.InMemory)
				disk, again := run(optest.OnDisk)
				require.Equal(t, rows, again)
				if !slices.Contains([]string{"join for ever", "wall timers", "join with a table", "join of tables", "join by a foreign key", "aggregate of updates", "aggregate in order", "sliding count windows"}, name) {
					require.Zero(t, disk.InHomes, "entries on disk of what has expired")
				}
				disk.InHomes, disk.Moved, memory.Moved, disk.InParts, memory.InParts = 0, 0, 0, 0, 0
				require.Equal(t, memory, disk)
			})
		})
	}
}

// More keys in a window, of which some panes have all and some have few, than are read
// of a pane at once.
func TestManyKeysInAWindow(t *testing.T) {
	var items []optest.Timed[hit]
	for i := range int64(6_000) {
		key := (i * 7919) % 2_000
		items = append(items, optest.At(i/1500*5, hit{fmt.Sprint("key ", key), i}))
		if key%9 == 0 {
			items = append(items, optest.At(i/1500*5+1, hit{fmt.Sprint("key ", key), 1}))
		}
	}
	run := func(where optest.Place) (optest.Report, []string) {
		job := operators.NewJob("many")
		in := operators.KeyBy(operators.FromSource(job, "a", optest.Items(disorder, items), hitSerde), "l", serde.String, byKey)
		out := optest.Collect(func(s *string) string { return string([]byte(*s)) })
		operators.ToSink(windowRows(operators.AggregateWindows(in, operators.Sliding(20*time.Millisecond, 5*time.Millisecond), summing())), "out", out)
		plan, err := job.Plan()
		require.NoError(t, err)
		report, err := optest.Run(plan, optest.Options{State: where, Seed: 3, Budget: 5_000, CommitEvery: 20})
		require.NoError(t, err)
		require.Zero(t, report.InHomes)
		return report, out.Rows
	}
	memory, rows := run(optest.InMemory)
	disk, again := run(optest.OnDisk)
	require.Len(t, rows, len(again))
	require.Equal(t, rows, again)
	require.NotZero(t, memory.Moved)
	require.NotZero(t, memory.InParts)
	disk.Moved, disk.InParts = memory.Moved, memory.InParts
	require.Equal(t, memory, disk)
}
