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

// asOf computes the value that a table of changes has for a key at a time, by brute force. Of two
// changes of one time the later one of the list holds. A change whose N is not positive deletes.
func asOf(changes []optest.Timed[hit], key string, t int64) *hit {
	var found *optest.Timed[hit]
	for i := range changes {
		if x := &changes[i]; x.Value.Key == key && x.Time <= t && (found == nil || x.Time >= found.Time) {
			found = x
		}
	}
	if found == nil || found.Value.N <= 0 {
		return nil
	}
	return &found.Value
}

func positive(_ *string, h *hit) bool { return h.N > 0 }

func withRow(k *string, h, with *hit) string {
	if with == nil {
		return fmt.Sprint(*k, h.N, "-")
	}
	return fmt.Sprint(*k, h.N, " with ", with.N)
}

// TestJoinTable: every item is joined with the value as of its time, in whatever order and at
// whatever speed the sides are read, over crashes, wherever state is stored; afterwards no item is
// left in the state, nor more than one version of a value.
func TestJoinTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items, more, changes := drawHits(t, "items", 30), drawHits(t, "more", 10), drawHits(t, "changes", 30)
		left := rapid.Bool().Draw(t, "left")
		job := operators.NewJob("enrich")
		probe := operators.KeyBy(operators.FromSource(job, "a", optest.Items(disorder, items, more), hitSerde), "l", serde.String, byKey)
		table := operators.FilterTable(operators.AsTable(
			operators.KeyBy(operators.FromSource(job, "b", optest.Items(disorder, changes), hitSerde), "r", serde.String, byKey)), positive)
		join := operators.JoinTable[string, hit, hit, string]
		if left {
			join = operators.LeftJoinTable[string, hit, hit, string]
		}
		var want []string
		for _, x := range slices.Concat(items, more) {
			if with := asOf(changes, x.Value.Key, x.Time); with != nil || left {
				want = append(want, withRow(&x.Value.Key, &x.Value, with))
			}
		}
		got, report := runRows(t, job, values(join(probe, table, "join", withRow)), drawOptions(t))
		require.ElementsMatch(t, want, got)
		require.Zero(t, report.Late)
		require.Zero(t, report.Behind)
		keys := map[string]bool{}
		for _, x := range changes {
			if asOf(changes, x.Value.Key, operators.MaxTime) != nil {
				keys[x.Value.Key] = true
			}
		}
		if len(keys) == 0 {
			require.Empty(t, report.State)
		} else {
			require.Equal(t, map[string]int{"join.versions": len(keys)}, report.State)
		}
	})
}

// oneKey runs a job whose items all have one key except those named x; "t" and "k" are its two
// sides. Each item is a read and a commit of its own.
func oneKey(t *testing.T, items []optest.Timed[hit], build func(k, t operators.KeyedStream[string, hit]) operators.Flow[string]) ([]string, optest.Report) {
	job := operators.NewJob("one key")
	src := operators.FromSource(job, "src", oneByOne{optest.Items(0, items)}, hitSerde)
	in := operators.KeyBy(src, "k", serde.String, func(h *hit) string {
		if h.Key == "x" {
			return "x"
		}
		return ""
	})
	named := func(name string) operators.KeyedStream[string, hit] {
		return operators.FilterValues(in, func(_ *string, h *hit) bool { return h.Key == name })
	}
	return runRows(t, job, build(named("k"), named("t")), optest.Options{CommitEvery: 1})
}

// A change behind the watermark is late, and holds from then on unless a newer value does; an item
// behind it is late and dropped.
func TestJoinTableLate(t *testing.T) {
	rows, report := oneKey(t, []optest.Timed[hit]{
		sec(1, 1, "t"), sec(10, 1),
		sec(50, 5, "t"), sec(51, 0, "x"),
		sec(30, 3, "t"), // late, older than what holds since 50
		sec(60, 2),
		sec(70, 0, "x"),
		sec(65, 6, "t"), // late, newer than what holds
		sec(80, 3),
		sec(20, 4), // late
		sec(90, 0, "x"),
	}, func(k, t operators.KeyedStream[string, hit]) operators.Flow[string] {
		return values(operators.JoinTable(k, operators.AsTable(t), "join", withRow))
	})
	require.Equal(t, []string{"1 with 1", "2 with 5", "3 with 6"}, rows)
	require.Equal(t, 3, report.Late)
}

// TestJoinTables: the result's changes are those of a loop over all times, one by one, whatever the
// order and the speed in which the sides are read.
func TestJoinTables(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job, a, b, left, right := twoSides(t)
		joined := operators.JoinTables(
			operators.FilterTable(operators.AsTable(left), positive),
			operators.FilterTable(operators.AsTable(right), positive), "join",
			func(_ *string, l, r *hit) int64 { return l.N*100 + r.N })
		row := func(k string, at int64, l, r *hit) string {
			if l == nil || r == nil {
				return fmt.Sprint(k, " ", at, " gone")
			}
			return fmt.Sprint(k, " ", at, " ", l.N*100+r.N)
		}
		out := optest.Collect[operators.Change[string, int64]](nil)
		operators.ToSink(joined, "out", out)
		plan, err := job.Plan()
		require.NoError(t, err)
		report, err := optest.Run(plan, drawOptions(t))
		require.NoError(t, err)

		// All changes of a key by time, those of the right side first.
		type change struct {
			t    int64
			left bool
			hit
		}
		var all []change
		for _, x := range b {
			all = append(all, change{x.Time, false, x.Value})
		}
		for _, x := range a {
			all = append(all, change{x.Time, true, x.Value})
		}
		slices.SortStableFunc(all, func(x, y change) int { return cmp.Compare(x.t, y.t) })
		now := map[bool]map[string]*hit{true: {}, false: {}}
		want := []string{}
		for _, x := range all {
			before := now[true][x.Key] != nil && now[false][x.Key] != nil
			if now[x.left][x.Key] = &x.hit; x.N <= 0 {
				delete(now[x.left], x.Key)
			}
			if l, r := now[true][x.Key], now[false][x.Key]; before || l != nil && r != nil {
				want = append(want, row(x.Key, x.t, l, r))
			}
		}
		var got []string
		for i, c := range out.Rows {
			text := fmt.Sprint(c.Key, " ", out.Times[i], " ", c.Value)
			if c.Deleted {
				text = fmt.Sprint(c.Key, " ", out.Times[i], " gone")
			}
			got = append(got, text)
		}
		slices.Sort(want)
		slices.Sort(got)
		require.ElementsMatch(t, want, got)
		require.Zero(t, report.Late)
		require.Zero(t, report.Behind)
	})
}

// A change behind the watermark is late, and counts unless the side's value is newer.
func TestJoinTablesLate(t *testing.T) {
	rows, report := oneKey(t, []optest.Timed[hit]{
		sec(1, 1, "t"), sec(10, 1), sec(50, 5, "t"), sec(51, 0, "x"),
		sec(30, 3, "t"), // older than what holds since 50
		sec(45, 2),      // newer than what holds since 10
		sec(70, 0, "x"),
	}, func(k, t operators.KeyedStream[string, hit]) operators.Flow[string] {
		joined := operators.JoinTables(operators.AsTable(k), operators.AsTable(t), "join", func(_ *string, l, r *hit) int64 { return l.N*100 + r.N })
		return operators.Map(joined, func(c *operators.Change[string, int64]) string { return fmt.Sprint(c.Value) })
	})
	require.Equal(t, []string{"101", "105", "205"}, rows)
	require.Equal(t, 2, report.Late)
}

// TestJoinTablesLatest: the last change of each key is the join of the last values that have
// arrived.
func TestJoinTablesLatest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job, a, b, left, right := twoSides(t)
		lastOf := func(xs []optest.Timed[hit]) map[string]int64 {
			m := map[string]int64{}
			for _, x := range xs {
				if x.Value.N > 0 {
					m[x.Value.Key] = x.Value.N
				} else {
					delete(m, x.Value.Key) // filtered out
				}
			}
			return m
		}
		want := map[string]int64{}
		for k, l := range lastOf(a) {
			if r, ok := lastOf(b)[k]; ok {
				want[k] = l*100 + r
			}
		}
		joined := operators.JoinTables(
			operators.FilterTable(operators.AsTable(left), positive),
			operators.FilterTable(operators.AsTable(right), positive), "join",
			func(_ *string, l, r *hit) int64 { return l.N*100 + r.N }, operators.Latest())
		out := optest.Collect(func(c *operators.Change[string, int64]) operators.Change[string, int64] {
			c.Key = strings.Clone(c.Key)
			return *c
		})
		operators.ToSink(joined, "out", out)
		plan, err := job.Plan()
		require.NoError(t, err)
		_, err = optest.Run(plan, drawOptions(t))
		require.NoError(t, err)
		got := map[string]int64{}
		for _, c := range out.Rows {
			if c.Deleted {
				delete(got, c.Key)
			} else {
				got[c.Key] = c.Value
			}
		}
		require.Equal(t, want, got)
	})
}

// oneByOne makes a source return one item a Read.
type oneByOne struct{ operators.Source[hit] }

type oneAtATime struct{ operators.Partition[hit] }

func (s oneByOne) Open(p int) (operators.Partition[hit], error) {
	part, err := s.Source.Open(p)
	return oneAtATime{part}, err
}

func (p oneAtATime) Read(b *operators.Batch[hit], _ int, now int64) (operators.Status, error) {
	return p.Partition.Read(b, 1, now)
}

// TestJoinLatest: which value an item is joined with depends on arrival. So each item is a commit
// of its own and comes alone; both sides come from one source.
func TestJoinLatest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 40)
		left := rapid.Bool().Draw(t, "left")
		job := operators.NewJob("enrich")
		src := operators.FromSource(job, "src", oneByOne{optest.Items(disorder, items)}, hitSerde)
		keyed := operators.KeyBy(src, "k", serde.String, byKey)
		table := operators.AsTable(operators.FilterValues(keyed, func(_ *string, h *hit) bool { return h.N > 2 }))
		probe := operators.FilterValues(keyed, func(_ *string, h *hit) bool { return h.N <= 2 })
		row := func(k *string, h, with *hit) string {
			if with == nil {
				return fmt.Sprint(*k, h.N, "-")
			}
			return fmt.Sprint(*k, h.N, with.N)
		}
		join := operators.JoinTable[string, hit, hit, string]
		if left {
			join = operators.LeftJoinTable[string, hit, hit, string]
		}
		current := map[string]*hit{}
		var want []string
		for i := range items {
			h := &items[i].Value
			if h.N > 2 {
				current[h.Key] = h
			} else if with := current[h.Key]; with != nil || left {
				want = append(want, row(&h.Key, h, with))
			}
		}
		slices.Sort(want)
		o := drawOptions(t)
		o.CommitEvery = 1
		got, _ := runRows(t, job, values(join(probe, table, "join", row, operators.Latest())), o)
		require.ElementsMatch(t, want, got)
	})
}
