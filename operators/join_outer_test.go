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

type joinOf = func(left, right operators.KeyedStream[string, hit], name string, within time.Duration, f func(k *string, l, r *hit) string, opts ...operators.Option) operators.KeyedStream[string, string]

// outerJoins are the joins, and the sides whose items they emit without a partner.
var outerJoins = []struct {
	name        string
	left, right bool
	join        joinOf
}{
	{"left", true, false, operators.LeftJoinStreams[string, hit, hit, string]},
	{"right", false, true, operators.RightJoinStreams[string, hit, hit, string]},
	{"outer", true, true, operators.OuterJoinStreams[string, hit, hit, string]},
}

func outerRow(k *string, l, r *hit) string {
	switch {
	case r == nil:
		return fmt.Sprint(*k, " ", l.N, " alone")
	case l == nil:
		return fmt.Sprint(*k, " alone ", r.N)
	}
	return fmt.Sprint(*k, " ", l.N, " ", r.N)
}

// outerAnswer computes the rows of an outer join by brute force, with their times.
func outerAnswer(a, b []optest.Timed[hit], within int64, left, right bool) []optest.Timed[string] {
	rows := []optest.Timed[string]{}
	near := func(l, r *optest.Timed[hit]) bool {
		return l.Value.Key == r.Value.Key && max(l.Time-r.Time, r.Time-l.Time) <= within
	}
	for i := range a {
		met := false
		for k := range b {
			if near(&a[i], &b[k]) {
				met = true
				rows = append(rows, optest.At(max(a[i].Time, b[k].Time), outerRow(&a[i].Value.Key, &a[i].Value, &b[k].Value)))
			}
		}
		if !met && left {
			rows = append(rows, optest.At(a[i].Time+within, outerRow(&a[i].Value.Key, &a[i].Value, nil)))
		}
	}
	for k := range b {
		met := false
		for i := range a {
			met = met || near(&a[i], &b[k])
		}
		if !met && right {
			rows = append(rows, optest.At(b[k].Time+within, outerRow(&b[k].Value.Key, nil, &b[k].Value)))
		}
	}
	return rows
}

// runTimed runs the job and returns the rows with their times.
func runTimed(t require.TestingT, job *operators.Job, rows operators.Flow[string], o optest.Options) ([]optest.Timed[string], optest.Report) {
	out := optest.Collect(func(s *string) string { return strings.Clone(*s) })
	operators.ToSink(rows, "out", out)
	plan, err := job.Plan()
	require.NoError(t, err)
	report, err := optest.Run(plan, o)
	require.NoError(t, err)
	got := []optest.Timed[string]{}
	for i, row := range out.Rows {
		got = append(got, optest.At(out.Times[i], row))
	}
	return got, report
}

// TestOuterJoin: all pairs, and each item without a partner once, with times that follow from the
// items; no state is left.
func TestOuterJoin(t *testing.T) {
	for _, x := range outerJoins {
		t.Run(x.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				within := rapid.SampledFrom([]time.Duration{0, time.Millisecond, 30 * time.Millisecond}).Draw(t, "within")
				job, a, b, left, right := twoSides(t)
				o := drawOptions(t)
				o.State = rapid.SampledFrom([]optest.Place{optest.InMemory, optest.OnDisk}).Draw(t, "state")
				got, report := runTimed(t, job, values(x.join(left, right, "join", within, outerRow)), o)
				require.ElementsMatch(t, outerAnswer(a, b, within.Milliseconds(), x.left, x.right), got)
				require.Zero(t, report.Late)
				require.Zero(t, report.Behind)
				requireNoState(t, report, false)
			})
		})
	}
}

// TestOuterJoinGrace: what comes behind the watermark by no more than the grace is joined as if it
// had come in time; only the times of results differ, which may not be late.
func TestOuterJoinGrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		within := rapid.SampledFrom([]time.Duration{0, 3 * time.Millisecond}).Draw(t, "within")
		a, b := drawHits(t, "left", 30), drawHits(t, "right", 30)
		job := operators.NewJob("grace")
		left := operators.KeyBy(operators.FromSource(job, "a", optest.Items(0, a), hitSerde), "l", serde.String, byKey)
		right := operators.KeyBy(operators.FromSource(job, "b", optest.Items(0, b), hitSerde), "r", serde.String, byKey)
		joined := operators.OuterJoinStreams(left, right, "join", within, outerRow, operators.Grace(disorder*time.Millisecond))
		var want []string
		for _, x := range outerAnswer(a, b, within.Milliseconds(), true, true) {
			want = append(want, x.Value)
		}
		got, report := runRows(t, job, values(joined), drawOptions(t))
		require.ElementsMatch(t, want, got)
		require.Zero(t, report.Late)
		requireNoState(t, report, false)
	})
}

// A partner that comes after the item has been emitted alone finds nothing, and is alone too; one
// that is too late to be kept is counted.
func TestOuterJoinLate(t *testing.T) {
	rows, report := oneKey(t, []optest.Timed[hit]{
		sec(10, 1),      // emitted alone at 15
		sec(30, 0, "x"), // event time
		sec(12, 2, "t"), // late: its time is over
		sec(27, 3, "t"), // behind the watermark, but kept
		sec(28, 4),      // joined with it
		sec(60, 0, "x"),
	}, func(k, t operators.KeyedStream[string, hit]) operators.Flow[string] {
		return values(operators.OuterJoinStreams(k, t, "join", 5*time.Second, outerRow))
	})
	require.Equal(t, []string{" 1 alone", " 4 3"}, rows)
	require.Equal(t, 1, report.Late)
}

// A timer of an item that waits for partners with Grace leaves those alone that came after it.
func TestOuterJoinGraceLeavesOthers(t *testing.T) {
	rows, report := oneKey(t, []optest.Timed[hit]{
		sec(0, 1),       // emitted alone at 11
		sec(3, 2),       // waits until 14
		sec(12, 0, "x"), // event time
		sec(3, 3, "t"),  // behind the watermark, within the grace
		sec(60, 0, "x"),
	}, func(k, t operators.KeyedStream[string, hit]) operators.Flow[string] {
		return values(operators.OuterJoinStreams(k, t, "join", time.Second, outerRow, operators.Grace(10*time.Second)))
	})
	require.Equal(t, []string{" 1 alone", " 2 3"}, rows)
	require.Zero(t, report.Late)
}

func TestOuterJoinRefused(t *testing.T) {
	job := operators.NewJob("refused")
	c, p := twoStreams(job)
	operators.ToSink(values(operators.OuterJoinStreams(c, p, "join", operators.Forever, outerRow, operators.Grace(-time.Second))), "out", optest.Collect[string](nil))
	_, err := job.Plan()
	require.ErrorContains(t, err, `join "join": within -1ns is not a whole number of milliseconds ≥ 0`)
	require.ErrorContains(t, err, `join "join": grace -1s is not a whole number of milliseconds ≥ 0`)
}

func ExampleLeftJoinStreams() {
	job := operators.NewJob("left join")
	c, p := twoStreams(job)
	show(job, operators.LeftJoinStreams(c, p, "near", 2*time.Millisecond, outerRow), showKV)
	// Output:
	// ann: ann 1 alone
	// ann: ann 3 100
	// ann: ann 4 alone
	// bob: bob 2 alone
	// bob: bob 5 alone
}

func ExampleRightJoinStreams() {
	job := operators.NewJob("right join")
	c, p := twoStreams(job)
	show(job, operators.RightJoinStreams(p, c, "near", 2*time.Millisecond, outerRow), showKV)
	// Output:
	// ann: ann 100 3
	// ann: ann alone 1
	// ann: ann alone 4
	// bob: bob alone 2
	// bob: bob alone 5
}

// ExampleOuterJoinStreams: no user clicks within a millisecond of the registration.
func ExampleOuterJoinStreams() {
	job := operators.NewJob("outer join")
	c, p := twoStreams(job)
	bobs := operators.FilterValues(c, func(_ *string, h *hit) bool { return h.Key == "bob" })
	show(job, operators.OuterJoinStreams(bobs, p, "near", time.Millisecond, outerRow), showKV)
	// Output:
	// ann: ann alone 100
	// bob: bob 2 alone
	// bob: bob 5 alone
}

// ExampleGrace: a partner may come 10 ms behind the watermark.
func ExampleGrace() {
	job := operators.NewJob("grace")
	c, p := twoStreams(job)
	show(job, operators.LeftJoinStreams(c, p, "near", 2*time.Millisecond, outerRow, operators.Grace(10*time.Millisecond)), showKV)
	// Output:
	// ann: ann 1 alone
	// ann: ann 3 100
	// ann: ann 4 alone
	// bob: bob 2 alone
	// bob: bob 5 alone
}
