package operators_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

func byLength() operators.RouteOption {
	return operators.RouteBy("length", func(k *string, groups int) int { return len(*k) % groups })
}

// Windows, functions and partial results behind a RouteBy give what they give by the hash, over crashes, changes of owners
// part by part, and with state in a home too.
func TestRouteBy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		left, right := drawHits(t, "left", 60), drawHits(t, "right", 20)
		rows := func(o optest.Options, opts ...operators.RouteOption) []string {
			job := operators.NewJob("routed")
			src := operators.FromSource(job, "left", optest.Items(disorder, left), hitSerde)
			ks := operators.KeyBy(src, "k", serde.String, byKey, opts...)
			more := operators.KeyBy(operators.FromSource(job, "right", optest.Items(disorder, right), hitSerde), "more", serde.String, byKey, opts...)
			panes := operators.PreAggregate(src, "panes", serde.String, byKey, operators.Tumbling(10*time.Millisecond), summing(), opts...)
			all := operators.GlobalMerge(src, "all-of-key", serde.String, byKey, summing(), func(_, _ *int64) bool { return false }, opts...)
			last := operators.Process(operators.AsStream(all), "last", func(c *operators.Context[string, string]) operators.Handler[int64] {
				sum := operators.NewValue(c, "sum", serde.Int64)
				return operators.Handler[int64]{
					Item:   func(v *int64) { *sum.Upsert() = *v; c.SetEventTimer(operators.MaxTime - 1) },
					Timers: operators.Timers{OnEvent: func(int64) { c.Emit(fmt.Sprint("all of ", c.Key(), " ", *sum.Get()), 0) }},
				}
			})
			got, report := runRows(t, job, operators.Merge("rows",
				windowRows(operators.AggregateWindows(ks, operators.Sliding(10*time.Millisecond, 5*time.Millisecond), summing())),
				windowRows(operators.CombineWindows(panes)),
				values(operators.JoinStreams(ks, more, "pairs", 5*time.Millisecond, func(k *string, l, r *hit) string { return pairRow(*k, l, r) })),
				values(last)), o)
			require.Zero(t, report.Late)
			return got
		}
		require.Equal(t, rows(optest.Options{}), rows(drawOptions(t), byLength()))
	})
}

// An item goes to the key group that the function returns for its key: that of the stage's operators, as a GlobalMerge there shows.
func TestRouteByGroups(t *testing.T) {
	const groups = 3
	n := func(h *hit) int64 { return h.N }
	for name, by := range map[string]func(in operators.Stream[hit]) operators.Flow[operators.KV[int64, int64]]{
		"KeyBy": func(in operators.Stream[hit]) operators.Flow[operators.KV[int64, int64]] {
			return operators.MapValues(operators.KeyBy(in, "k", serde.Int64, n, operators.Modulo[int64]()), func(_ *int64, h *hit) int64 { return h.N })
		},
		"PreAggregate": func(in operators.Stream[hit]) operators.Flow[operators.KV[int64, int64]] {
			return operators.MapValues(operators.CombineWindows(operators.PreAggregate(in, "k", serde.Int64, n, operators.Tumbling(time.Second), summing(), operators.Modulo[int64]())),
				func(_ *int64, w *operators.Windowed[int64]) int64 { return w.Value })
		},
		"GlobalMerge": func(in operators.Stream[hit]) operators.Flow[operators.KV[int64, int64]] {
			return operators.MapValues(operators.GlobalParts(in, "k", serde.Int64, n, summing(), nil, operators.Modulo[int64]()),
				func(_ *int64, p *operators.Part[int64]) int64 { return p.Acc })
		},
	} {
		t.Run(name, func(t *testing.T) {
			var items []optest.Timed[hit]
			for n := int64(-7); n <= 7; n++ {
				items = append(items, optest.At(1, hit{"k", n}))
			}
			job := operators.NewJob("modulo")
			there := operators.GlobalParts(by(operators.FromSource(job, "in", optest.Items(0, items), hitSerde)), "groups", serde.Int64, func(kv *operators.KV[int64, int64]) int64 { return kv.Key }, operators.Counting[operators.KV[int64, int64]](), nil)
			seen := 0
			operators.ToSink(there, "out", operators.FuncSink(func(b *operators.Batch[operators.KV[int64, operators.Part[int64]]]) error {
				for i := range b.Items {
					seen++
					require.Equal(t, ((b.Items[i].Key%groups)+groups)%groups, b.Items[i].Value.From, "key %d", b.Items[i].Key)
				}
				return nil
			}))
			plan, err := job.Plan()
			require.NoError(t, err)
			_, err = optest.Run(plan, optest.Options{Groups: groups})
			require.NoError(t, err)
			require.Equal(t, len(items), seen)
		})
	}
}

// What fits no other RouteBy says so: streams and state have its name, and have no slots.
func TestRouteByIsPartOfThePlan(t *testing.T) {
	plan := func(opts ...operators.RouteOption) *operators.Plan {
		job := operators.NewJob("named")
		in := operators.FromSource(job, "in", optest.Items(0, scattered), hitSerde)
		operators.ToSink(operators.KeyBy(operators.Count(operators.KeyBy(in, "k", serde.String, byKey, opts...)), "out", serde.String, func(c *operators.Change[string, int64]) string { return c.Key }),
			"sink", operators.FuncSink(func(*operators.Batch[operators.KV[string, operators.Change[string, int64]]]) error { return nil }))
		p, err := job.Plan()
		require.NoError(t, err)
		return p
	}
	hashed, routed := plan(), plan(byLength())
	require.Equal(t, hashed.Streams[0].Type+`, key groups by RouteBy "length"`, routed.Streams[0].Type)
	require.Equal(t, hashed.Stages[1].Tables[0].Type+`, key groups by RouteBy "length"`, routed.Stages[1].Tables[0].Type)
	require.Equal(t, hashed.Streams[1].Type, routed.Streams[1].Type)
	require.Equal(t, 4, hashed.WithSlots(4).Streams[0].Slots)
	require.Zero(t, routed.WithSlots(4).Streams[0].Slots)
}

func TestRouteByIsChecked(t *testing.T) {
	refused := func(build func(operators.Stream[hit])) string {
		job := operators.NewJob("bad")
		build(operators.FromSource(job, "in", optest.Items(0, scattered), hitSerde))
		_, err := job.Plan()
		require.Error(t, err)
		return err.Error()
	}
	keyBy := func(s operators.Stream[hit], name string, o ...operators.RouteOption) operators.KeyedStream[string, hit] {
		return operators.KeyBy(s, name, serde.String, byKey, o...)
	}
	pair := func(l, r operators.KeyedStream[string, hit]) {
		operators.JoinStreams(l, r, "pairs", time.Second, func(k *string, l, r *hit) string { return pairRow(*k, l, r) })
	}
	require.Contains(t, refused(func(s operators.Stream[hit]) { operators.Rebalance(s, "moved", byLength()) }),
		`stream "moved": RouteBy is an option of what has a key: KeyBy, PreAggregate and GlobalMerge`)
	require.Contains(t, refused(func(s operators.Stream[hit]) { keyBy(s, "k", operators.Modulo[int64]()) }),
		`stream "k": RouteBy has a function of int64, for keys that are string`)
	require.Contains(t, refused(func(s operators.Stream[hit]) { keyBy(s, "k", operators.RouteBy[string]("nothing", nil)) }), `stream "k": RouteBy needs a name and a function`)
	require.Contains(t, refused(func(s operators.Stream[hit]) { pair(keyBy(s, "a"), keyBy(s, "b", byLength())) }),
		`one of the streams that meet there has no RouteBy, and the other one RouteBy "length", so that equal keys would not meet: use the same for all`)
	first := operators.RouteBy("first", func(k *string, groups int) int { return int((*k)[0]) % groups })
	require.Contains(t, refused(func(s operators.Stream[hit]) { pair(keyBy(s, "a", first), keyBy(s, "b", byLength())) }),
		`has RouteBy "first", and the other one RouteBy "length"`)
	require.Contains(t, refused(func(s operators.Stream[hit]) {
		pair(keyBy(s, "a", byLength()), operators.KeyAhead(s, serde.String, byKey, partitionOf(1)))
	}), "is KeyAhead, and the other is not")
	require.Contains(t, refused(func(s operators.Stream[hit]) {
		operators.JoinForeign(operators.AsTable(keyBy(s, "a")), operators.AsTable(keyBy(s, "b", byLength())), "refs", func(_ *string, l *hit) string { return l.Key }, func(k *string, _, _ *hit) string { return *k })
	}), `has no RouteBy, and the other one RouteBy "length"`)
	require.Contains(t, refused(func(s operators.Stream[hit]) {
		operators.MergeKeyed(keyBy(s, "a"), keyBy(s, "b", byLength()))
	}), `has no RouteBy, and the other one RouteBy "length"`)
}

// A function that returns no key group fails the job, and loses nothing in silence.
func TestRouteByOutOfRange(t *testing.T) {
	for _, group := range []int{-1, 3} {
		job := operators.NewJob("range")
		in := operators.FromSource(job, "in", optest.Items(0, scattered), hitSerde)
		ks := operators.KeyBy(in, "k", serde.String, byKey, operators.RouteBy("bad", func(*string, int) int { return group }))
		operators.ToSink(ks, "out", operators.FuncSink(func(*operators.Batch[operators.KV[string, hit]]) error { return nil }))
		plan, err := job.Plan()
		require.NoError(t, err)
		_, err = optest.Run(plan, optest.Options{Groups: 3})
		require.ErrorContains(t, err, fmt.Sprintf(`stream "k", key "a": RouteBy returns key group %d, and there are 3, from 0`, group))
	}
}
