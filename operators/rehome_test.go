package operators_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// rehomed are operators whose rows do not depend on when tasks commit.
var rehomed = map[string]func(in, other operators.KeyedStream[string, hit]) operators.KeyedStream[string, string]{
	"windows": func(in, _ operators.KeyedStream[string, hit]) operators.KeyedStream[string, string] {
		return windowText(operators.AggregateWindows(in, operators.Tumbling(10*time.Millisecond), summing()))
	},
	"sliding windows": func(in, _ operators.KeyedStream[string, hit]) operators.KeyedStream[string, string] {
		return windowText(operators.AggregateWindows(in, operators.Sliding(20*time.Millisecond, 5*time.Millisecond), summing()))
	},
	"windows with lateness": func(in, _ operators.KeyedStream[string, hit]) operators.KeyedStream[string, string] {
		return windowText(operators.AggregateWindows(in, operators.Sliding(10*time.Millisecond, 5*time.Millisecond), summing(), operators.Lateness(12*time.Millisecond), operators.EachLate()))
	},
	"items of windows": func(in, _ operators.KeyedStream[string, hit]) operators.KeyedStream[string, string] {
		return windowText(applySums(in, operators.Sliding(10*time.Millisecond, 5*time.Millisecond), 10, operators.Lateness(12*time.Millisecond), operators.EachLate()))
	},
	"sessions": func(in, _ operators.KeyedStream[string, hit]) operators.KeyedStream[string, string] {
		return windowText(operators.AggregateSessions(in, "sessions", 6*time.Millisecond, summing(), operators.Lateness(3*time.Millisecond)))
	},
	"join of windows": func(in, other operators.KeyedStream[string, hit]) operators.KeyedStream[string, string] {
		return operators.JoinWindows(in, other, "join", operators.Sliding(10*time.Millisecond, 5*time.Millisecond), func(key *string, _, end int64, l, r *hit) string {
			return fmt.Sprint(*key, " ", end, " ", l.N, " ", r.N)
		}).With(serde.String)
	},
	"join of streams": func(in, other operators.KeyedStream[string, hit]) operators.KeyedStream[string, string] {
		return operators.JoinStreams(in, other, "join", 4*time.Millisecond, func(key *string, l, r *hit) string { return fmt.Sprint(*key, " ", l.N, " ", r.N) }).With(serde.String)
	},
	"process": func(in, _ operators.KeyedStream[string, hit]) operators.KeyedStream[string, string] {
		return operators.Process(in, "sums", func(c *operators.Context[string, string]) operators.Handler[hit] {
			sums := operators.NewMap(c, "sums", serde.Int64, serde.Int64)
			return operators.Handler[hit]{
				Item: func(h *hit) {
					at := (c.Time() + 1000) / 10
					*sums.Upsert(at) += h.N
					c.SetEventTimer((at+1)*10 - 1000)
				},
				Timers: operators.Timers{OnEvent: func(t int64) {
					at := (t+1000)/10 - 1
					c.Emit(fmt.Sprint(c.Key(), " ", at, " ", *sums.Get(at)), t)
					sums.Delete(at)
				}},
			}
		}).With(serde.String)
	},
}

func windowText(ks operators.KeyedStream[string, operators.Windowed[int64]]) operators.KeyedStream[string, string] {
	return operators.MapValues(ks, func(key *string, w *operators.Windowed[int64]) string {
		return fmt.Sprintf("%s [%d,%d) %d", *key, w.Start, w.End, w.Value)
	}).With(serde.String)
}

// Parts of key groups are re-homed all the time, between items and between commits, over crashes, and while key groups move:
// the rows are those without.
func TestRehomed(t *testing.T) {
	per := operators.WatermarkPer(operators.Key, disorder*time.Millisecond)
	seeds := uint64(6)
	if testing.Short() {
		seeds = 2
	}
	for grain, opts := range map[string][]operators.RouteOption{
		"task": nil, "key": {per}, "key by producer": {per, operators.ByProducer()},
		"auto": {operators.WatermarkPer(operators.Auto, 0)},
	} {
		for kind, build := range rehomed {
			t.Run(grain+" "+kind, func(t *testing.T) {
				t.Parallel()
				moved := 0
				for seed := range seeds {
					rng := rand.New(rand.NewPCG(seed, 82))
					parts := make([][]optest.Timed[hit], 1)
					if grain == "key by producer" || grain == "task" {
						parts = make([][]optest.Timed[hit], 3)
					}
					at := int64(-40)
					for range 150 {
						at += []int64{0, 0, 1, 1, 2, 3, 15}[rng.IntN(7)]
						p := rng.IntN(len(parts))
						parts[p] = append(parts[p], optest.At(at-rng.Int64N(disorder), hit{fmt.Sprint("key ", rng.IntN(12)), rng.Int64N(100)}))
					}
					rows := func(slots int) ([]string, optest.Report) {
						job := operators.NewJob("rehomed")
						src := operators.FromSource(job, "src", optest.Items(disorder, parts...), hitSerde)
						in := operators.KeyBy(src, "in", serde.String, byKey, opts...)
						other := operators.KeyBy(src, "other", serde.String, byKey, opts...)
						return runRows(t, job, values(build(in, other)), optest.Options{
							Parallelism: 3, Groups: 4, Slots: slots, Seed: seed, CommitEvery: 1 + int(seed%4), CrashEvery: int(seed%3) * 20, Switch: disorder,
						})
					}
					want, without := rows(0)
					got, report := rows(3)
					require.Equal(t, want, got, "seed %d", seed)
					require.Zero(t, without.Rehomed)
					require.Zero(t, report.Late)
					moved += report.Rehomed
				}
				require.NotZero(t, moved)
			})
		}
	}
}

// State that cannot be re-homed says why, and what to do; the task then re-homes nothing.
func TestStateThatStays(t *testing.T) {
	byText := func(h *hit) string { return h.Key }
	for why, build := range map[string]func(src operators.Stream[hit]) operators.Flow[string]{
		`state "window.passed": state stays in its key group: keys of a group share its clocks, and a part of it cannot take one along; use WatermarkPer(Key), or a stage without slots`: func(src operators.Stream[hit]) operators.Flow[string] {
			in := operators.KeyBy(src, "in", serde.String, byKey, operators.WatermarkPer(operators.Keys(4), time.Second))
			return values(windowText(operators.CountWindows(in, operators.Tumbling(time.Second))))
		},
		`state "sums.clock": state stays in its key group: keys of a group share its clocks`: func(src operators.Stream[hit]) operators.Flow[string] {
			in := operators.KeyBy(src, "in", serde.String, byKey, operators.WatermarkPer(operators.Keys(4), time.Second))
			return values(rehomed["process"](in, in))
		},
		`depends on all keys; use Suppress without HoldAtMost, or a stage without slots`: func(src operators.Stream[hit]) operators.Flow[string] {
			held := operators.Suppress(operators.KeyBy(src, "in", serde.String, byKey), "held", time.Second, operators.HoldAtMost(100))
			return operators.Map(held, func(kv *operators.KV[string, hit]) string { return kv.Key })
		},
		`the keys of a GlobalMerge are not those that slots are for; use a stage without slots`: func(src operators.Stream[hit]) operators.Flow[string] {
			merged := operators.GlobalMerge(src, "merged", serde.String, byText, summing(), nil)
			return operators.Map(merged, func(c *operators.Change[string, int64]) string { return c.Key })
		},
		`each key group has a copy of a table that is broadcast; use a stage without slots`: func(src operators.Stream[hit]) operators.Flow[string] {
			in := operators.KeyBy(src, "in", serde.String, byKey)
			table := operators.Count(operators.KeyBy(src, "other", serde.String, byKey))
			return values(operators.JoinBroadcast(in, table, "join", func(key *string, _ *hit) string { return *key }, func(key *string, _ *hit, _ *int64) string { return *key }, operators.Latest()).With(serde.String))
		},
	} {
		job := operators.NewJob("stays")
		operators.ToSink(build(operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde)), "out", nothing[string]())
		plan, err := job.Plan()
		require.NoError(t, err)
		var errs []error
		for i := range plan.Stages {
			chain := plan.Stages[i].New
			plan.Stages[i].New = func(rt exec.Runtime) (exec.Chain, error) {
				c, err := chain(rt)
				if err == nil {
					errs = append(errs, exec.Rehome(c.Tables(), 0, 1, func(uint64, []byte) bool { return false }))
				}
				return c, err
			}
		}
		report, err := optest.Run(plan, optest.Options{State: optest.InMemory, Slots: 2})
		require.NoError(t, err)
		require.Zero(t, report.Rehomed)
		err = errors.Join(errs...)
		require.ErrorIs(t, err, exec.ErrStays, why)
		require.ErrorContains(t, err, why)
	}
}
