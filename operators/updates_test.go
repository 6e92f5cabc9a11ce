package operators_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// walk iterates over the changes of a table in the order of time and calls f with the value that
// each replaces, nil if there was none, and with the new value.
func walk(changes []optest.Timed[hit], f func(x *optest.Timed[hit], before, after *hit)) {
	sorted := slices.Clone(changes)
	slices.SortStableFunc(sorted, func(x, y optest.Timed[hit]) int { return cmp.Compare(x.Time, y.Time) })
	now := map[string]*hit{}
	for i := range sorted {
		x := &sorted[i]
		before, after := now[x.Value.Key], &x.Value
		if after.N <= 0 {
			after = nil
		}
		now[x.Value.Key] = after
		f(x, before, after)
	}
}

// TestUpdates: the updates of a table are those of a loop over time, each pair adjacent, and no
// more than one value of a key is kept.
func TestUpdates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := operators.NewJob("updates")
		changes, table := drawTable(t, job, "table")
		rows := operators.Map(operators.Updates(table, "updates"), func(kv *operators.KV[string, operators.Update[int64]]) string {
			return fmt.Sprint(kv.Key, " ", kv.Value.Kind, " ", kv.Value.Value)
		})
		got, report := runTimed(t, job, rows, drawOptions(t))
		want := map[string][]optest.Timed[string]{}
		left := map[string]bool{}
		walk(changes, func(x *optest.Timed[hit], before, after *hit) {
			k := x.Value.Key
			add := func(kind operators.Kind, h *hit) {
				want[k] = append(want[k], optest.At(x.Time, fmt.Sprint(k, " ", kind, " ", h.N)))
			}
			switch left[k] = after != nil; {
			case before != nil && after != nil:
				add(operators.UpdateBefore, before)
				add(operators.UpdateAfter, after)
			case before != nil:
				add(operators.Delete, before)
			case after != nil:
				add(operators.Insert, after)
			}
		})
		have := map[string][]optest.Timed[string]{}
		for _, x := range got { // of each key in order
			k, _, _ := strings.Cut(x.Value, " ")
			have[k] = append(have[k], x)
		}
		require.Equal(t, want, have)
		require.Zero(t, report.Late)
		alive := 0
		for _, there := range left {
			if there {
				alive++
			}
		}
		require.Equal(t, alive, report.State["updates.value"])
		require.Equal(t, 0, report.State["updates.waiting"])
	})
}

// A change behind the watermark is late, and counts unless the value is newer.
func TestUpdatesLate(t *testing.T) {
	rows, report := oneKey(t, []optest.Timed[hit]{
		sec(10, 1), sec(50, 5), sec(51, 0, "x"),
		sec(30, 3), // older than what holds since 50
		sec(70, 0, "x"),
		sec(65, 6), // newer
	}, func(k, _ operators.KeyedStream[string, hit]) operators.Flow[string] {
		return operators.Map(operators.Updates(operators.AsTable(k), "u"), func(kv *operators.KV[string, operators.Update[hit]]) string {
			return fmt.Sprint(kv.Value.Kind.String(), kv.Value.Value.N)
		})
	})
	require.ElementsMatch(t, []string{"+I1", "-U1", "+U5", "-U5", "+U6"}, rows)
	require.Equal(t, 2, report.Late)
}

func parity(_ *string, n *int64) string { return []string{"even", "odd"}[*n%2] }

// total counts and sums a group's values.
type total struct{ N, Sum int64 }

func totals() operators.Subtractor[int64, total] {
	return operators.Subtractor[int64, total]{
		Add:      func(acc *total, n *int64) { acc.N, acc.Sum = acc.N+1, acc.Sum+*n },
		Subtract: func(acc *total, n *int64) { acc.N, acc.Sum = acc.N-1, acc.Sum-*n },
		Acc:      serde.JSON[total](),
	}
}

func totalRow(c *operators.Change[string, total]) string {
	if c.Deleted {
		return c.Key + " none"
	}
	return fmt.Sprint(c.Key, " ", c.Value.N, " ", c.Value.Sum)
}

// TestAggregateUpdates: the table of the groups is, after every time, the aggregate of the existing
// entries, whichever groups they have been in; a group without any is gone.
func TestAggregateUpdates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := operators.NewJob("groups")
		changes, table := drawTable(t, job, "table")
		groups := operators.AggregateUpdates(operators.GroupTable(table, "parity", serde.String, parity), totals())
		got, report := runTimed(t, job, operators.Map(groups, totalRow), drawOptions(t))

		want, touched, now := []optest.Timed[string]{}, map[string]int64{}, map[string]int64{}
		last := operators.MinTime
		done := func(t int64) { // emits the groups that were touched before t
			for _, g := range []string{"even", "odd"} {
				at, ok := touched[g]
				if !ok || at == t {
					continue
				}
				delete(touched, g)
				var sum total
				for _, n := range now {
					if parity(nil, &n) == g {
						sum.N, sum.Sum = sum.N+1, sum.Sum+n
					}
				}
				c := operators.Change[string, total]{Key: g, Value: sum, Deleted: sum.N == 0}
				want = append(want, optest.At(at, totalRow(&c)))
			}
		}
		walk(changes, func(x *optest.Timed[hit], before, after *hit) {
			if x.Time > last {
				done(x.Time)
				last = x.Time
			}
			if before != nil {
				touched[parity(nil, &before.N)] = x.Time
				delete(now, x.Value.Key)
			}
			if after != nil {
				touched[parity(nil, &after.N)] = x.Time
				now[x.Value.Key] = after.N
			}
		})
		done(operators.MaxTime)
		require.ElementsMatch(t, want, got)
		require.Zero(t, report.Late)
		require.Zero(t, report.Behind)
		alive := map[string]bool{}
		for _, n := range now {
			alive[parity(nil, &n)] = true
		}
		require.Equal(t, len(alive), report.State["aggregate.members"])
	})
}

// With Latest the last change of each group is the aggregate of the values that hold at the end.
func TestAggregateUpdatesLatest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := operators.NewJob("latest")
		changes, table := drawTable(t, job, "table")
		groups := operators.AggregateUpdates(operators.GroupTable(table, "parity", serde.String, parity), totals(), operators.Latest())
		got, _ := runTimed(t, job, operators.Map(groups, totalRow), drawOptions(t))
		want := map[string]total{}
		now := map[string]int64{}
		walk(changes, func(x *optest.Timed[hit], _, after *hit) {
			if delete(now, x.Value.Key); after != nil {
				now[x.Value.Key] = after.N
			}
		})
		for _, n := range now {
			g := want[parity(nil, &n)]
			want[parity(nil, &n)] = total{g.N + 1, g.Sum + n}
		}
		last := map[string]string{}
		for _, x := range got {
			g, _, _ := strings.Cut(x.Value, " ")
			last[g] = x.Value
		}
		for g, row := range last {
			c := operators.Change[string, total]{Key: g, Value: want[g], Deleted: want[g].N == 0}
			require.Equal(t, totalRow(&c), row)
			delete(want, g)
		}
		require.Empty(t, want)
	})
}

func TestUpdateSerde(t *testing.T) {
	sd := operators.UpdateSerde(serde.String)
	for kind := operators.Insert; kind <= operators.Delete; kind++ {
		in := operators.Update[string]{Kind: kind, Value: "v"}
		data := sd.Append(nil, &in)
		require.Equal(t, []byte{byte(kind), 1, 'v'}, data) // must not change: it is on disk
		var out operators.Update[string]
		n, err := sd.Decode(data, &out)
		require.NoError(t, err)
		require.Equal(t, len(data), n)
		require.Equal(t, in, out)
	}
	var out operators.Update[string]
	_, err := sd.Decode(nil, &out)
	require.ErrorIs(t, err, serde.ErrShort)
	_, err = sd.Decode([]byte{4, 1, 'v'}, &out)
	require.ErrorIs(t, err, serde.ErrMalformed)
}

// towns is a table of where people live, with the times of their moves.
func towns(job *operators.Job) operators.Table[string, string] {
	type entry struct{ name, town string }
	sd := serde.New("entry", func(dst []byte, e *entry) []byte {
		return serde.AppendString(serde.AppendString(dst, e.name), e.town)
	}, func(r *serde.Reader, e *entry) { e.name, e.town = r.String(), r.String() })
	src := operators.FromSource(job, "people", optest.Items(0, []optest.Timed[entry]{
		optest.At(1, entry{"ann", "Bern"}), optest.At(2, entry{"bob", "Bern"}),
		optest.At(3, entry{"ann", "Chur"}), optest.At(4, entry{"bob", ""}),
	}), sd)
	return operators.AsTableOf(operators.KeyBy(src, "by-name", serde.String, func(e *entry) string { return e.name }),
		func(_ *string, e *entry) (string, bool) { return e.town, e.town != "" })
}

// ExampleUpdates: ann moves, and bob is deleted.
func ExampleUpdates() {
	job := operators.NewJob("updates")
	show(job, operators.Updates(towns(job), "updates"), func(kv *operators.KV[string, operators.Update[string]]) string {
		return fmt.Sprint(kv.Key, " ", kv.Value.Kind, " ", kv.Value.Value)
	})
	// Output:
	// ann +I Bern
	// ann +U Chur
	// ann -U Bern
	// bob +I Bern
	// bob -D Bern
}

// ExampleAggregateUpdates: how many people live in each town, after some have moved.
func ExampleAggregateUpdates() {
	job := operators.NewJob("population")
	byTown := operators.GroupTable(towns(job), "by-town", serde.String, func(_, town *string) string { return *town })
	people := operators.AggregateUpdates(byTown, operators.Subtractor[string, int64]{
		Add:      func(n *int64, _ *string) { *n++ },
		Subtract: func(n *int64, _ *string) { *n-- },
	})
	show(job, people, func(c *operators.Change[string, int64]) string {
		return fmt.Sprint(c.Key, " ", c.Value, " ", c.Deleted)
	})
	// Output:
	// Bern 0 true
	// Bern 1 false
	// Bern 1 false
	// Bern 2 false
	// Chur 1 false
}
