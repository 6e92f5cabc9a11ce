package operators_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// alive is a tombstone function: a hit whose N is not positive deletes its key.
func alive(_ *string, h *hit) (int64, bool) { return h.N, h.N > 0 }

// drawTable draws the changes of a table of N by key, and builds it.
func drawTable(t *rapid.T, job *operators.Job, name string) ([]optest.Timed[hit], operators.Table[string, int64]) {
	changes := drawHits(t, name, 30)
	src := operators.FromSource(job, name, optest.Items(disorder, changes), hitSerde)
	return changes, operators.AsTableOf(operators.KeyBy(src, name+"-by-key", serde.String, byKey), alive)
}

// A join as of a time finds nothing after a tombstone, and no version is left of a key that has
// been deleted.
func TestAsTableOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := operators.NewJob("tombstones")
		items := drawHits(t, "items", 30)
		changes, table := drawTable(t, job, "table")
		probe := operators.KeyBy(operators.FromSource(job, "items", optest.Items(disorder, items), hitSerde), "by-key", serde.String, byKey)
		joined := operators.LeftJoinTable(probe, table, "join", func(k *string, h *hit, n *int64) string {
			if n == nil {
				return fmt.Sprint(*k, h.N, "-")
			}
			return fmt.Sprint(*k, h.N, " with ", *n)
		})
		var want []string
		for _, x := range items {
			want = append(want, withRow(&x.Value.Key, &x.Value, asOf(changes, x.Value.Key, x.Time)))
		}
		got, report := runRows(t, job, values(joined), drawOptions(t))
		require.ElementsMatch(t, want, got)
		require.Zero(t, report.Late)
		keys := map[string]bool{}
		for _, x := range changes {
			if asOf(changes, x.Value.Key, operators.MaxTime) != nil {
				keys[x.Value.Key] = true
			}
		}
		require.Equal(t, len(keys), report.State["join.versions"])
	})
}

// A table that is partitioned by another key keeps its deletions.
func TestAsTableOfChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := operators.NewJob("again")
		changes, table := drawTable(t, job, "table")
		moved := operators.KeyBy(table, "moved", serde.String, func(c *operators.Change[string, int64]) string { return c.Key + "'" })
		again := operators.AsTableOf(moved, func(_ *string, c *operators.Change[string, int64]) (int64, bool) { return c.Value, !c.Deleted })
		rows := operators.Map(again, func(c *operators.Change[string, int64]) string {
			return fmt.Sprint(c.Key, " ", c.Value, " ", c.Deleted)
		})
		var want []string
		for _, x := range changes {
			if x.Value.N > 0 {
				want = append(want, fmt.Sprint(x.Value.Key, "' ", x.Value.N, " false"))
			} else {
				want = append(want, fmt.Sprint(x.Value.Key, "' 0 true"))
			}
		}
		slices.Sort(want)
		got, _ := runRows(t, job, rows, drawOptions(t))
		require.ElementsMatch(t, want, got)
	})
}

// ExampleAsTableOf: ann has left at 5, so later clicks have no partner.
func ExampleAsTableOf() {
	job := operators.NewJob("tombstone")
	people := operators.FromSource(job, "people", optest.Items(0, []optest.Timed[hit]{
		optest.At(1, hit{"ann", 100}), optest.At(5, hit{"ann", 0}),
	}), hitSerde)
	table := operators.AsTableOf(operators.KeyBy(people, "p", serde.String, byKey),
		func(_ *string, h *hit) (int64, bool) { return h.N, h.N > 0 })
	byName := operators.KeyBy(clicks(job), "c", serde.String, byKey)
	show(job, operators.JoinTable(byName, table, "with", func(_ *string, c *hit, n *int64) string { return fmt.Sprint(c.N, " of ", *n) }), showKV)
	// Output:
	// ann: 1 of 100
	// ann: 3 of 100
}
