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

// refers is the foreign key of an entry.
func refers(_ *string, n *int64) string { return []string{"a", "b", "dd"}[*n%3] }

func foreignRow(k *string, l, r *int64) string {
	if r == nil {
		return fmt.Sprint(*k, " ", *l, " -")
	}
	return fmt.Sprint(*k, " ", *l, " ", *r)
}

func changeRow(c *operators.Change[string, string]) string {
	if c.Deleted {
		return c.Key + " gone"
	}
	return c.Value
}

// foreignAnswer computes the changes of the join by going from time to time.
func foreignAnswer(a, b []optest.Timed[hit], all bool) []optest.Timed[string] {
	var times []int64
	for _, x := range slices.Concat(a, b) {
		times = append(times, x.Time)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	rows := []optest.Timed[string]{}
	left, right := map[string]int64{}, map[string]int64{}
	for _, t := range times {
		touched, moved := map[string]bool{}, map[string]bool{}
		for _, x := range a {
			if x.Time != t {
				continue
			}
			k := x.Value.Key
			_, before := left[k]
			if delete(left, k); x.Value.N > 0 {
				left[k] = x.Value.N
			}
			touched[k] = touched[k] || before || x.Value.N > 0
		}
		for _, x := range b {
			if x.Time == t {
				if delete(right, x.Value.Key); x.Value.N > 0 {
					right[x.Value.Key] = x.Value.N
				}
				moved[x.Value.Key] = true
			}
		}
		for k, n := range left {
			touched[k] = touched[k] || moved[refers(nil, &n)]
		}
		for k, yes := range touched {
			if !yes {
				continue
			}
			l, there := left[k]
			r, with := right[refers(nil, &l)]
			switch {
			case there && with:
				rows = append(rows, optest.At(t, foreignRow(&k, &l, &r)))
			case there && all:
				rows = append(rows, optest.At(t, foreignRow(&k, &l, nil)))
			default:
				rows = append(rows, optest.At(t, k+" gone"))
			}
		}
	}
	return rows
}

// alives counts the keys that a table has at the end.
func alives(changes []optest.Timed[hit]) int {
	keys := map[string]bool{}
	for _, x := range changes {
		keys[x.Value.Key] = asOf(changes, x.Value.Key, operators.MaxTime) != nil
	}
	n := 0
	for _, there := range keys {
		if there {
			n++
		}
	}
	return n
}

// TestJoinForeign: every change of the result is that of a loop from time to time, whichever table
// changes, while entries change their references, and keys appear and disappear.
func TestJoinForeign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := operators.NewJob("foreign")
		a, left := drawTable(t, job, "left")
		b, right := drawTable(t, job, "right")
		join, all := operators.JoinForeign[string, string, int64, int64, string], rapid.Bool().Draw(t, "all")
		if all {
			join = operators.LeftJoinForeign[string, string, int64, int64, string]
		}
		o := drawOptions(t)
		o.State = rapid.SampledFrom([]optest.Place{optest.InMemory, optest.OnDisk}).Draw(t, "state")
		got, report := runTimed(t, job, operators.Map(join(left, right, "join", refers, foreignRow), changeRow), o)
		require.ElementsMatch(t, foreignAnswer(a, b, all), got)
		require.Zero(t, report.Late)
		require.Zero(t, report.Behind)
		want := map[string]int{}
		if n := alives(a); n > 0 {
			want["join-updates.value"], want["join-refs.left"] = n, n
		}
		if n := alives(b); n > 0 {
			want["join-refs.right"] = n
		}
		require.Equal(t, want, report.State)
	})
}

// ExampleJoinForeign: users with the canton of their town; ann moves, and bob is deleted.
func ExampleJoinForeign() {
	job := operators.NewJob("foreign")
	type town struct{ name, canton string }
	sd := serde.New("town", func(dst []byte, x *town) []byte {
		return serde.AppendString(serde.AppendString(dst, x.name), x.canton)
	}, func(r *serde.Reader, x *town) { x.name, x.canton = r.String(), r.String() })
	src := operators.FromSource(job, "towns", optest.Items(0, []optest.Timed[town]{
		optest.At(0, town{"Bern", "BE"}), optest.At(0, town{"Chur", "GR"}),
	}), sd)
	cantons := operators.AsTable(operators.KeyBy(src, "by-town", serde.String, func(x *town) string { return x.name }))
	show(job, operators.JoinForeign(towns(job), cantons, "canton",
		func(_, town *string) string { return *town },
		func(_, _ *string, x *town) string { return x.canton }),
		func(c *operators.Change[string, string]) string {
			return fmt.Sprint(c.Key, " ", c.Value, " ", c.Deleted)
		})
	// Output:
	// ann BE false
	// ann GR false
	// bob  true
	// bob BE false
}
