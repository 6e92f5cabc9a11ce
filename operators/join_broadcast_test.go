package operators_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// another is the key by which an item refers to a broadcast table.
func another(_ *string, h *hit) string { return []string{"a", "b", "dd", "nobody"}[(h.N+3)%4] }

// TestJoinBroadcast: every item is joined with the value that the table has for another key as of
// the item's time, in whatever task it is, and each key group keeps one version of a value.
func TestJoinBroadcast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := operators.NewJob("broadcast")
		items := drawHits(t, "items", 30)
		changes, table := drawTable(t, job, "table")
		probe := operators.KeyBy(operators.FromSource(job, "items", optest.Items(disorder, items), hitSerde), "by-key", serde.String, byKey)
		join, all := operators.JoinBroadcast[string, string, hit, int64, string], rapid.Bool().Draw(t, "all")
		if all {
			join = operators.LeftJoinBroadcast[string, string, hit, int64, string]
		}
		row := func(k *string, h *hit, n *int64) string {
			if n == nil {
				return fmt.Sprint(*k, h.N, "-")
			}
			return fmt.Sprint(*k, h.N, " with ", *n)
		}
		want := []optest.Timed[string]{}
		for _, x := range items {
			var n *int64
			if with := asOf(changes, another(nil, &x.Value), x.Time); with != nil {
				n = &with.N
			}
			if n != nil || all {
				want = append(want, optest.At(x.Time, row(&x.Value.Key, &x.Value, n)))
			}
		}
		o := drawOptions(t)
		o.State = rapid.SampledFrom([]optest.Place{optest.InMemory, optest.OnDisk}).Draw(t, "state")
		got, report := runTimed(t, job, values(join(probe, table, "join", another, row)), o)
		require.ElementsMatch(t, want, got)
		require.Zero(t, report.Late)
		require.Zero(t, report.Behind)
		state := map[string]int{}
		if n := alives(changes); n > 0 {
			state["join.broadcast"] = n * o.Groups
		}
		require.Equal(t, state, report.State)
	})
}

// A change behind the watermark is counted once, however many copies of the table there are.
func TestJoinBroadcastLate(t *testing.T) {
	late := 0
	for seed := range uint64(20) {
		job := operators.NewJob("late")
		src := operators.FromSource(job, "table", oneByOne{optest.Items(0, []optest.Timed[hit]{sec(10, 1), sec(50, 2), sec(30, 3)})}, hitSerde)
		table := operators.AsTable(operators.KeyBy(src, "by-key", serde.String, byKey))
		joined := operators.JoinBroadcast(operators.KeyBy(clicks(job), "c", serde.String, byKey), table, "join", another, withRow)
		_, report := runRows(t, job, values(joined), optest.Options{Seed: seed, CommitEvery: 1, Groups: 8, Parallelism: 3})
		require.LessOrEqual(t, report.Late, 1)
		late += report.Late
	}
	require.Positive(t, late)
}

func TestJoinBroadcastLatest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := operators.NewJob("latest")
		items := drawHits(t, "items", 20)
		changes, table := drawTable(t, job, "table")
		probe := operators.KeyBy(operators.FromSource(job, "items", optest.Items(disorder, items), hitSerde), "by-key", serde.String, byKey)
		joined := operators.LeftJoinBroadcast(probe, table, "join", another, func(k *string, h *hit, n *int64) string {
			return fmt.Sprint(*k, h.N, n != nil)
		}, operators.Latest())
		o := drawOptions(t)
		got, report := runRows(t, job, values(joined), o)
		require.Len(t, got, len(items)) // which value each was joined with depends on arrival
		last := map[string]int64{}
		for _, x := range changes {
			last[x.Value.Key] = x.Value.N
		}
		alive := 0
		for _, n := range last {
			if n > 0 {
				alive++
			}
		}
		require.Equal(t, alive*o.Groups, report.State["join.broadcast"])
	})
}

// ExampleJoinBroadcast: the price of each clicked thing, as of the click; the clicks stay with the
// task that owns their user.
func ExampleJoinBroadcast() {
	job := operators.NewJob("broadcast")
	prices := operators.FromSource(job, "prices", optest.Items(0, []optest.Timed[hit]{
		optest.At(0, hit{"1", 10}), optest.At(0, hit{"3", 30}), optest.At(0, hit{"4", 40}), optest.At(10, hit{"4", 44}),
	}), hitSerde)
	table := operators.AsTable(operators.KeyBy(prices, "by-thing", serde.String, byKey))
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	show(job, operators.JoinBroadcast(byName, table, "cost",
		func(_ *string, c *hit) string { return fmt.Sprint(c.N) },
		func(_ *string, c, price *hit) string { return fmt.Sprint(c.N, " for ", price.N) }), showKV)
	// Output:
	// ann: 1 for 10
	// ann: 3 for 30
	// ann: 4 for 44
}
