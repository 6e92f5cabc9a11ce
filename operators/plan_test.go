package operators_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

func nothing[T any]() operators.Sink[T] {
	return operators.FuncSink(func(*operators.Batch[T]) error { return nil })
}

// TestPlan: where a job is cut.
func TestPlan(t *testing.T) {
	job := operators.NewJob("j")
	a := operators.FromSource(job, "a", optest.Items[hit](0, nil, nil), hitSerde)
	b := operators.FromSource(job, "b", optest.Items[hit](0, nil), hitSerde)
	l := operators.KeyBy(a, "l", serde.String, byKey)
	r := operators.KeyBy(b, "r", serde.String, byKey, operators.Parallelism(3))
	joined := operators.JoinStreams(l, r, "join", time.Second, func(_ *string, x, y *hit) int64 { return x.N + y.N })
	operators.ToSink(joined, "out", nothing[operators.KV[string, int64]]())
	plan, err := job.Plan()
	require.NoError(t, err)
	for i := range plan.Stages {
		plan.Stages[i].New, plan.Stages[i].Tables = nil, nil
	}
	require.Equal(t, []exec.StreamSpec{
		{Name: "l", Type: "operators_test.hit as hit", Groups: 0, Hashed: true},
		{Name: "r", Type: "operators_test.hit as hit", Hashed: true},
		{Name: "out", Groups: 1, Type: "operators.KV[string,int64] as string → int64"},
	}, func() []exec.StreamSpec {
		s := plan.Streams
		s[0].Type, s[1].Type = "operators_test.hit as hit", "operators_test.hit as hit"
		for i := range s {
			s[i].Times = nil
		}
		return s
	}())
	require.Equal(t, []exec.StageSpec{
		{Name: "a", Outputs: []int{0}, Partitions: 2},
		{Name: "b", Outputs: []int{1}, Partitions: 1},
		{Name: "l", Inputs: []int{0, 1}, Outputs: []int{2}, Parallelism: 3},
		{Name: "out", Inputs: []int{2}, Parallelism: 1, Sink: true},
	}, plan.Stages)
}

// TestPlanErrors: Plan names all errors at once.
func TestPlanErrors(t *testing.T) {
	type blob struct{}
	job := operators.NewJob("j")
	a := operators.FromSource(job, "a", optest.Items[hit](0, nil), hitSerde)
	operators.KeyBy(operators.Map(a, func(h *hit) blob { return blob{} }), "blobs", serde.String, func(*blob) string { return "" })
	l := operators.KeyBy(a, "l", serde.String, byKey, operators.Groups(8))
	r := operators.KeyBy(a, "l", serde.String, byKey, operators.Groups(16))
	operators.JoinStreams(l, r, "join", 1, func(_ *string, x, y *hit) int64 { return 0 })
	operators.CountWindows(l, operators.Tumbling(-time.Second))
	back := operators.KeyBy(operators.Count(l), "back", serde.String, func(c *operators.Change[string, int64]) string { return c.Key })
	operators.MergeKeyed(operators.MapValues(l, func(_ *string, h *hit) int64 { return h.N }),
		operators.MapValues(back, func(_ *string, c *operators.Change[string, int64]) int64 { return c.Value }))
	_, err := job.Plan()
	for _, want := range []string{
		`stream "blobs": its items (operators.KV[string,`,
		`stream "l": there is a stream of that name`,
		`"l" (8 key groups) and "l" (16 key groups) meet in one stage`,
		`join "join": within 1ns is not a whole number of milliseconds`,
		`window of -1s every -1s: not a positive whole number of milliseconds`,
		`stream "back" leads back into stage "l"`,
		`there is no sink`,
	} {
		require.ErrorContains(t, err, want)
	}
}

// A key, an accumulator or a state without serde is an error of the plan, and no panic of a task.
func TestForgottenSerdes(t *testing.T) {
	type blob struct{ N int64 }
	job := operators.NewJob("j")
	a := operators.FromSource(job, "a", optest.Items[hit](0, nil), hitSerde)
	l := operators.KeyBy(a, "l", nil, byKey)
	operators.KeyAhead(a, nil, byKey, func(*string) int { return 0 })
	operators.PreAggregate(a, "pre", nil, byKey, operators.Tumbling(time.Second), operators.Counting[hit]())
	operators.GlobalMerge(a, "merged", nil, byKey, operators.Counting[hit](), nil)
	operators.GroupTable(operators.Count(l), "grouped", nil, func(*string, *int64) int64 { return 0 })
	operators.Aggregate(l, operators.Aggregator[hit, blob]{Add: func(*blob, *hit, int64) {}})
	_, err := job.Plan()
	for _, want := range []string{
		`stream "l": its keys (string) have no serde; give one of package serde`,
		`KeyAhead in "a": its keys (string) have no serde`,
		`pre-aggregation "pre": its keys (string) have no serde`,
		`global merge "merged": its keys (string) have no serde`,
		`stream "grouped": its keys (int64) have no serde`,
		`has no serde; set Acc of the aggregator`,
	} {
		require.ErrorContains(t, err, want)
	}

	job = operators.NewJob("j")
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde), "k", serde.String, byKey)
	p := operators.Process(in, "p", func(c *operators.Context[string, string]) operators.Handler[hit] {
		operators.NewValue[blob](c, "v", nil)
		operators.NewList[blob](c, "l", nil)
		operators.NewMap[string, blob](c, "m", nil, nil)
		return operators.Handler[hit]{}
	})
	operators.ToSink(p, "out", nothing[operators.KV[string, string]]())
	_, err = job.Plan()
	for _, want := range []string{`"p", state "v": `, `"p", state "l": `, `"p", state "m": string has no serde`, "blob has no serde; give one of package serde"} {
		require.ErrorContains(t, err, want)
	}
}

// A source refuses options that it would have to ignore.
func TestSourceOptions(t *testing.T) {
	for name, o := range map[string]operators.RouteOption{
		"grain": operators.WatermarkPer(operators.Key, time.Second), "no grain": operators.WatermarkPer(operators.Grain{}, 0), "items": operators.MergeItems(3),
		"at": operators.MergeAt(func(*hit) bool { return true }), "hot": operators.Hot(), "by producer": operators.ByProducer(), "route": byLength(), "parallelism": operators.Parallelism(-1),
	} {
		t.Run(name, func(t *testing.T) {
			job := operators.NewJob("j")
			src := operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde, o)
			operators.ToSink(src, "out", optest.Collect(func(h *hit) hit { return *h }))
			_, err := job.Plan()
			require.ErrorContains(t, err, `source "src": its only option is Parallelism, at least 1; give WatermarkPer, ByProducer and RouteBy to KeyBy`)
		})
	}
}

// TestBadPayload: the error names an item that cannot be decoded.
func TestBadPayload(t *testing.T) {
	job := operators.NewJob("j")
	a := operators.FromSource(job, "a", optest.Items(0, []optest.Timed[int64]{optest.At[int64](1, 1)}), brokenSerde)
	operators.ToSink(a, "out", nothing[int64]())
	plan, err := job.Plan()
	require.NoError(t, err)
	_, err = optest.Run(plan, optest.Options{})
	require.ErrorContains(t, err, `stage "out": stream "out", key group 0, item 0 of 1: broken: byte 0: bytes end inside a value`)
	require.ErrorIs(t, err, serde.ErrShort)
}

var brokenSerde = serde.New("broken",
	func(dst []byte, _ *int64) []byte { return dst },
	func(r *serde.Reader, v *int64) { *v = r.Int64() })
