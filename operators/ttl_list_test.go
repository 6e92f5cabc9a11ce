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

// listRows is a function that does something to a list by an item's N, and emits what the
// list holds.
func listRows(in operators.KeyedStream[string, hit], opts ...operators.StateOption) operators.KeyedStream[string, string] {
	return operators.Process(in, "lists", func(c *operators.Context[string, string]) operators.Handler[hit] {
		list := operators.NewList(c, "list", serde.Int64, opts...)
		return operators.Handler[hit]{Item: func(h *hit) {
			switch h.N {
			case -3:
				list.Delete()
			case -2:
				list.DropBefore(c.Time() - 2)
			case -1: // nothing
			default:
				list.Add(c.Time()-h.N, &h.N) // some of them have ended
			}
			row := fmt.Sprint(c.Key(), c.Time(), ":")
			for _, e := range list.All() {
				row += fmt.Sprint(" ", e.Time, "/", e.Value)
			}
			c.Emit(row, c.Time())
		}}
	}, operators.InOrder()).With(serde.String)
}

// TestTTLOfLists: a list with a TTL holds what a slice holds, with crashes; in homes it makes
// the same outputs and changes as in memory, and in the end nothing is left.
func TestTTLOfLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 60)
		ttl := rapid.SampledFrom([]int64{1, 3, 10, 50}).Draw(t, "ttl")
		o := drawOptions(t)
		run := func(where optest.Place) ([]string, optest.Report) {
			job := operators.NewJob("lists")
			in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde), "k", serde.String, byKey)
			o := o
			o.State = where
			return runRows(t, job, values(listRows(in, operators.TTL(time.Duration(ttl)*time.Millisecond))), o)
		}
		rows, report := run(optest.InMemory)
		again, disk := run(optest.OnDisk)
		require.Equal(t, rows, again)
		require.Zero(t, disk.InHomes)
		disk.Moved, report.Moved, disk.InParts, report.InParts = 0, 0, 0, 0
		require.Equal(t, report, disk)
		requireNoState(t, report, false)

		slices.SortStableFunc(items, func(a, b optest.Timed[hit]) int { return int(a.Time - b.Time) })
		type elem struct{ time, n int64 }
		lists := map[string][]elem{}
		var want []string
		for _, x := range items {
			k, n := x.Value.Key, x.Value.N
			list := lists[k]
			switch n {
			case -3:
				list = nil
			case -2:
				list = slices.DeleteFunc(list, func(e elem) bool { return e.time < x.Time-2 })
			case -1:
			default:
				list = append(list, elem{x.Time - n, n})
			}
			list = slices.DeleteFunc(list, func(e elem) bool { return e.time+ttl <= x.Time })
			slices.SortStableFunc(list, func(a, b elem) int { return int(a.time - b.time) })
			row := fmt.Sprint(k, x.Time, ":")
			for _, e := range list {
				row += fmt.Sprint(" ", e.time, "/", e.n)
			}
			lists[k], want = list, append(want, row)
		}
		slices.Sort(want)
		require.Equal(t, want, rows)
	})
}

// ExampleTTL_list: what a user has clicked in the last 10 ms.
func ExampleTTL_list() {
	job := operators.NewJob("ttl")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	recent := operators.Process(byName, "recent", func(c *operators.Context[string, string]) operators.Handler[hit] {
		list := operators.NewList(c, "clicks", serde.Int64, operators.TTL(10*time.Millisecond))
		return operators.Handler[hit]{Item: func(h *hit) {
			list.Add(c.Time(), &h.N)
			row := ""
			for _, e := range list.All() {
				row += fmt.Sprint(" ", e.Value)
			}
			c.Emit(row, c.Time())
		}}
	}, operators.InOrder())
	show(job, recent, func(kv *operators.KV[string, string]) string { return kv.Key + kv.Value })
	// Output:
	// ann 1
	// ann 1 3
	// ann 3 4
	// bob 2
	// bob 5
}
