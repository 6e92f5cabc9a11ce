package operators_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// ApplyWindows has the items of a window in the order of their times, those of one time as they came, and each
// late item within the lateness computes the window again.
func TestApplyWindows(t *testing.T) {
	job := operators.NewJob("apply")
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(0, []optest.Timed[hit]{
		optest.At(3, hit{"a", 1}), optest.At(1, hit{"a", 2}), optest.At(3, hit{"a", 3}), optest.At(1, hit{"b", 4}), optest.At(4, hit{"a", 5}),
		optest.At(10, hit{"a", 6}), optest.At(2, hit{"a", 7}), optest.At(30, hit{"b", 8}), optest.At(5, hit{"a", 9}),
		optest.At(3, hit{"a", 10}), optest.At(3, hit{"a", 11}), // behind a watermark of 10, and of 30
	}), hitSerde), "k", serde.String, byKey)
	show := operators.ApplyWindows(in, operators.Sliding(10*time.Millisecond, 5*time.Millisecond), func(key *string, items []operators.Elem[hit]) string {
		text := strings.Clone(*key)
		for i := range items {
			text += fmt.Sprintf(" %d@%d", items[i].Value.N, items[i].Time)
		}
		return text
	}, operators.Lateness(5*time.Millisecond), operators.EachLate())
	out, lates := optest.Collect(func(s *string) string { return strings.Clone(*s) }), optest.Collect[int64](nil)
	operators.ToSink(operators.Map(show, func(w *operators.KV[string, operators.Windowed[string]]) string {
		return fmt.Sprintf("[%d,%d) %s", w.Value.Start, w.Value.End, w.Value.Value)
	}), "out", out)
	operators.ToSink(operators.Map(operators.Late[hit](show), func(kv *operators.KV[string, hit]) int64 { return kv.Value.N }), "late", lates)
	plan, err := job.Plan()
	require.NoError(t, err)
	report, err := optest.Run(plan, optest.Options{CommitEvery: 1})
	require.NoError(t, err)
	require.Equal(t, []string{
		"[-5,5) a 2@1 7@2 1@3 3@3 5@4", "[-5,5) b 4@1", "[0,10) a 2@1 7@2 1@3 3@3 5@4", "[0,10) b 4@1", // the watermark is 10
		"[0,10) a 2@1 7@2 1@3 3@3 5@4 9@5", "[0,10) a 2@1 7@2 1@3 3@3 10@3 5@4 9@5",
		"[5,15) a 9@5 6@10", "[10,20) a 6@10", "[25,35) b 8@30", "[30,40) b 8@30",
	}, out.Rows)
	require.Equal(t, []int64{11}, lates.Rows)
	requireNoState(t, report, false)
}

// A list that has lost an item of a window is an error that names the window, and no row.
func TestApplyWindowsCounts(t *testing.T) {
	job := operators.NewJob("apply")
	src := operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde)
	in := operators.KeyBy(src, "k", serde.String, byKey)
	operators.ToSink(applySums(in, operators.Tumbling(10*time.Millisecond), 10), "out", operators.FuncSink(func(*operators.Batch[operators.KV[string, operators.Windowed[int64]]]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	c, err := plan.Stages[1].New(&benchRuntime{outs: []*exec.Output{exec.NewOutput(64)}})
	require.NoError(t, err)
	var section []byte
	for n := range int64(3) {
		section = hitSerde.Append(serde.AppendString(serde.AppendInt64(section, 1), "a"), &hit{"a", n}) // at 1, 2, 3
	}
	_, err = c.Process(&exec.In{Group: 5, Items: 3}, section, exec.Budget{})
	require.NoError(t, err)
	tables := c.Tables()
	for i, table := range tables {
		table.Changes(i, exec.NewOutput(64))
	}
	require.True(t, strings.HasSuffix(tables[len(tables)-1].Name(), ".items"))
	require.NoError(t, tables[len(tables)-1].Apply(5, exec.OpDelete, serde.AppendUint64(serde.AppendString(nil, "a"), 1), nil))
	_, err = c.Advance(exec.Bounds{Time: 10}, exec.Budget{})
	require.EqualError(t, err, `stage "k": window "window" from 0 to 10 of key a: the list has 2 of its items, its panes count 3: the state is damaged`)
}
