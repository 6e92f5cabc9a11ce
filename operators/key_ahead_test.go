package operators_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// partitionOf is how the tests below partition keys.
func partitionOf(n int) func(k *string) int {
	return func(k *string) int { return len(*k) % n }
}

func partitionHits(items []optest.Timed[hit], n int) [][]optest.Timed[hit] {
	parts := make([][]optest.Timed[hit], n)
	for _, x := range items {
		p := partitionOf(n)(&x.Value.Key)
		parts[p] = append(parts[p], x)
	}
	return parts
}

// Windows and Process in the source's stage, and behind Forward, give what they give behind KeyBy,
// over crashes, with state in a home too; and the plan has no stream that KeyBy would need.
func TestKeyAhead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 3
		parts := partitionHits(drawHits(t, "items", 60), n)
		rows := func(key func(operators.Stream[hit]) operators.KeyedStream[string, hit], o optest.Options) []string {
			job := operators.NewJob("ahead")
			src := operators.FromSource(job, "src", optest.Items(disorder, parts...), hitSerde)
			ks := key(src)
			sums := windowRows(operators.AggregateWindows(ks, operators.Sliding(10*time.Millisecond, 5*time.Millisecond), summing()))
			numbers := operators.Process(ks, "numbers", func(c *operators.Context[string, string]) operators.Handler[hit] {
				seen := operators.NewValue(c, "n", serde.Int64)
				return operators.Handler[hit]{
					Item:   func(h *hit) { *seen.Upsert() += h.N; c.SetEventTimer(1_000_000) },
					Timers: operators.Timers{OnEvent: func(int64) { c.Emit(fmt.Sprint(c.Key(), " in all ", *seen.Get()), c.Time()) }},
				}
			})
			got, report := runRows(t, job, operators.Merge("all", sums, values(numbers)), o)
			require.Zero(t, report.Late)
			return got
		}
		o := drawOptions(t)
		want := rows(func(s operators.Stream[hit]) operators.KeyedStream[string, hit] {
			return operators.KeyBy(s, "k", serde.String, byKey)
		}, optest.Options{})
		require.Equal(t, want, rows(func(s operators.Stream[hit]) operators.KeyedStream[string, hit] {
			if rapid.Bool().Draw(t, "forward") {
				s = operators.Forward(s, "behind")
			}
			return operators.KeyAhead(s, serde.String, byKey, partitionOf(n))
		}, o))
	})
}

// Two sources with equal partitions are joined without a repartition.
func TestKeyAheadJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 3
		left, right := partitionHits(drawHits(t, "left", 30), n), partitionHits(drawHits(t, "right", 30), n)
		rows := func(ahead bool, o optest.Options) []string {
			job := operators.NewJob("join")
			side := func(name string, parts [][]optest.Timed[hit]) operators.KeyedStream[string, hit] {
				src := operators.FromSource(job, name, optest.Items(disorder, parts...), hitSerde)
				if !ahead {
					return operators.KeyBy(src, name+"-k", serde.String, byKey)
				}
				return operators.KeyAhead(operators.Forward(src, name+"-k"), serde.String, byKey, partitionOf(n))
			}
			got, _ := runRows(t, job, values(operators.JoinStreams(side("left", left), side("right", right), "pairs", 5*time.Millisecond, func(k *string, l, r *hit) string { return pairRow(*k, l, r) })), o)
			return got
		}
		require.Equal(t, rows(false, optest.Options{}), rows(true, drawOptions(t)))
	})
}

func TestKeyAheadIsChecked(t *testing.T) {
	job := operators.NewJob("wrong")
	src := operators.FromSource(job, "src", optest.Items(0, []optest.Timed[hit]{optest.At(1, hit{"bob", 1})}, nil), hitSerde)
	operators.ToSink(operators.Count(operators.KeyAhead(src, serde.String, byKey, partitionOf(2))), "out", operators.FuncSink(func(*operators.Batch[operators.Change[string, int64]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	_, err = optest.Run(plan, optest.Options{})
	require.ErrorContains(t, err, `KeyAhead in "src": key bob came in partition 0 and belongs in 1`)

	refused := func(build func(operators.Stream[hit])) string {
		job := operators.NewJob("bad")
		build(operators.FromSource(job, "src", optest.Items(0, []optest.Timed[hit]{}), hitSerde))
		_, err := job.Plan()
		require.Error(t, err)
		return err.Error()
	}
	for _, move := range []func(operators.Stream[hit]) operators.Flow[hit]{
		func(s operators.Stream[hit]) operators.Flow[hit] { return operators.Rebalance(s, "moved") },
		func(s operators.Stream[hit]) operators.Flow[hit] {
			return operators.Map(operators.KeyBy(s, "moved", serde.String, byKey), func(kv *operators.KV[string, hit]) hit { return kv.Value })
		},
		func(s operators.Stream[hit]) operators.Flow[hit] {
			return operators.Forward(operators.Rebalance(s, "spread"), "moved")
		},
	} {
		require.Contains(t, refused(func(s operators.Stream[hit]) { operators.KeyAhead(move(s), serde.String, byKey, partitionOf(1)) }),
			`KeyAhead in "moved": what flows there is not partitioned as a source is`)
	}
	require.Contains(t, refused(func(s operators.Stream[hit]) { operators.KeyAhead(s, serde.String, byKey, nil) }), "there is no function that returns the partition")
}

// KeyAhead has a key in the key group of its partition, and KeyBy in that of its hash: where both are in one stage,
// equal keys would not meet, and rows would be missing.
func TestKeyAheadMeetsNoKeyBy(t *testing.T) {
	const n = 3
	for name, meet := range map[string]func(ahead, by operators.KeyedStream[string, hit]) operators.Flow[string]{
		"join": func(ahead, by operators.KeyedStream[string, hit]) operators.Flow[string] {
			return values(operators.JoinStreams(ahead, by, "pairs", operators.Forever, func(k *string, l, r *hit) string { return pairRow(*k, l, r) }))
		},
		"behind windows": func(ahead, by operators.KeyedStream[string, hit]) operators.Flow[string] {
			counts := operators.CountWindows(ahead, operators.Tumbling(10*time.Millisecond))
			return values(operators.JoinStreams(by, counts, "pairs", operators.Forever, func(k *string, _ *hit, _ *operators.Windowed[int64]) string { return *k }))
		},
		"merge": func(ahead, by operators.KeyedStream[string, hit]) operators.Flow[string] {
			return windowRows(operators.CountWindows(operators.MergeKeyed(by, ahead), operators.Tumbling(10*time.Millisecond)))
		},
		"foreign keys": func(ahead, by operators.KeyedStream[string, hit]) operators.Flow[string] {
			left, right := operators.AsTable(by), operators.AsTable(ahead)
			joined := operators.JoinForeign(left, right, "refs", func(_ *string, l *hit) string { return l.Key }, func(k *string, _, _ *hit) string { return *k })
			return operators.Map(joined, func(c *operators.Change[string, string]) string { return c.Value })
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := operators.NewJob("bad")
			left := operators.FromSource(job, "left", optest.Items(0, make([][]optest.Timed[hit], n)...), hitSerde)
			right := operators.FromSource(job, "right", optest.Items(0, scattered), hitSerde)
			ahead := operators.KeyAhead(operators.Forward(left, "left-k"), serde.String, byKey, partitionOf(n))
			by := operators.KeyBy(right, "right-k", serde.String, byKey, operators.Groups(n))
			operators.ToSink(meet(ahead, by), "out", optest.Collect(func(s *string) string { return strings.Clone(*s) }))
			_, err := job.Plan()
			require.ErrorContains(t, err, "one of the streams that meet there is KeyAhead, and the other is not")
		})
	}
}

// State of a KeyAhead is in other key groups than that of a KeyBy, in a stage of the same name too: its type says so.
func TestKeyAheadIsPartOfThePlan(t *testing.T) {
	const n = 3
	table := func(key func(operators.Stream[hit]) operators.KeyedStream[string, hit]) string {
		job := operators.NewJob("typed")
		in := operators.FromSource(job, "in", optest.Items(0, make([][]optest.Timed[hit], n)...), hitSerde)
		operators.ToSink(operators.Count(key(in)), "out", operators.FuncSink(func(*operators.Batch[operators.Change[string, int64]]) error { return nil }))
		p, err := job.Plan()
		require.NoError(t, err)
		require.Equal(t, "k", p.Stages[1].Name)
		return p.Stages[1].Tables[0].Type
	}
	by := table(func(in operators.Stream[hit]) operators.KeyedStream[string, hit] {
		return operators.KeyBy(in, "k", serde.String, byKey, operators.Groups(n))
	})
	require.Equal(t, by+", key groups by KeyAhead", table(func(in operators.Stream[hit]) operators.KeyedStream[string, hit] {
		return operators.KeyAhead(operators.Forward(in, "k"), serde.String, byKey, partitionOf(n))
	}))
}

// One item in 64 is checked, from the first on.
func TestKeyAheadChecksSome(t *testing.T) {
	run := func(wrong int) error {
		var items []optest.Timed[hit]
		for i := range 200 {
			key := "aa"
			if i == wrong {
				key = "b"
			}
			items = append(items, optest.At(int64(i), hit{key, 1}))
		}
		job := operators.NewJob("some")
		keyed := operators.KeyAhead(operators.FromSource(job, "src", optest.Items(0, items, nil), hitSerde), serde.String, byKey, partitionOf(2))
		operators.ToSink(keyed, "out", operators.FuncSink(func(*operators.Batch[operators.KV[string, hit]]) error { return nil }))
		plan, err := job.Plan()
		require.NoError(t, err)
		_, err = optest.Run(plan, optest.Options{})
		return err
	}
	found := 0
	for i := range 128 {
		if err := run(i); err != nil {
			require.True(t, strings.Contains(err.Error(), "belongs in 1"), err)
			found++
		}
	}
	require.Equal(t, 2, found)
}
