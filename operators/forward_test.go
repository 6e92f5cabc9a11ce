package operators_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
)

// The items of each of three partitions pass a second stage of three tasks in their order if they
// are forwarded, over crashes too, and some of them do not if they are rebalanced.
func TestForward(t *testing.T) {
	const items = 40
	var parts [3][]optest.Timed[hit]
	for p := range parts {
		for i := range int64(items) {
			parts[p] = append(parts[p], optest.At(i, hit{string(rune('a' + p)), i}))
		}
	}
	run := func(seed uint64, crashEvery int, move func(operators.Stream[hit]) operators.Stream[hit]) (inOrder bool) {
		job := operators.NewJob("forward")
		moved := move(operators.FromSource(job, "src", optest.Items(100, parts[0], parts[1], parts[2]), hitSerde))
		inOrder = true
		next, seen := map[string]int64{}, map[hit]bool{}
		passed := operators.Filter(moved, func(h *hit) bool {
			own := hit{strings.Clone(h.Key), h.N}
			if !seen[own] { // otherwise it is read again, after a crash
				seen[own] = true
				inOrder = inOrder && own.N == next[own.Key]
				next[own.Key] = own.N + 1
			}
			return true
		})
		rows, _ := runRows(t, job, operators.Map(passed, showHit), optest.Options{Parallelism: 3, CommitEvery: 2, CrashEvery: crashEvery, Seed: seed})
		require.Len(t, rows, 3*items)
		return inOrder
	}
	spread := 0
	for seed := range uint64(40) {
		require.True(t, run(seed, int(seed%2)*20, func(s operators.Stream[hit]) operators.Stream[hit] { return operators.Forward(s, "moved") }), "seed %d", seed)
		if !run(seed, 0, func(s operators.Stream[hit]) operators.Stream[hit] {
			return operators.Rebalance(s, "moved", operators.Groups(3))
		}) {
			spread++
		}
	}
	require.NotZero(t, spread, "the test cannot fail")
}

// The items of each partition are in its key group of the stream, behind a second Forward too: the
// tasks of the next stage share the load as those of this one do.
func TestForwardSpreads(t *testing.T) {
	parts := make([][]optest.Timed[hit], 5)
	for p := range parts {
		for i := range int64(p + 1) {
			parts[p] = append(parts[p], optest.At(i, hit{string(rune('a' + p)), i}))
		}
	}
	job := operators.NewJob("spread")
	first := operators.Forward(operators.FromSource(job, "src", optest.Items(10, parts...), hitSerde), "first")
	operators.ToSink(operators.Forward(first, "second"), "out", operators.FuncSink(func(*operators.Batch[hit]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	got := map[string][]int{"first": make([]int, 5), "second": make([]int, 5)}
	for i := range plan.Stages {
		if items := got[plan.Stages[i].Name]; items != nil {
			open := plan.Stages[i].New
			plan.Stages[i].New = func(rt exec.Runtime) (exec.Chain, error) {
				c, err := open(rt)
				return counted{c, items}, err
			}
		}
	}
	_, err = optest.Run(plan, optest.Options{Parallelism: 3, NoReplay: true})
	require.NoError(t, err)
	require.Equal(t, map[string][]int{"first": {1, 2, 3, 4, 5}, "second": {1, 2, 3, 4, 5}}, got)
}

// counted counts the items that a chain processes, by key group.
type counted struct {
	exec.Chain
	items []int
}

func (c counted) Process(in *exec.In, payload []byte, b exec.Budget) (exec.Did, error) {
	did, err := c.Chain.Process(in, payload, b)
	c.items[in.Group] += did.Units
	return did, err
}

// The stream has the key groups of what it forwards, also of a stream.
func TestForwardKeepsGroups(t *testing.T) {
	job := operators.NewJob("groups")
	src := operators.FromSource(job, "src", optest.Items(0, []optest.Timed[hit]{optest.At(1, hit{"a", 1})}, nil, nil), hitSerde)
	first := operators.Forward(src, "first")
	second := operators.Forward(operators.Rebalance(first, "spread", operators.Groups(5)), "second", operators.Parallelism(2))
	operators.ToSink(second, "out", operators.FuncSink(func(*operators.Batch[hit]) error { return nil }))
	plan, err := job.Plan()
	require.NoError(t, err)
	groups := map[string]int{}
	for _, s := range plan.Streams {
		groups[s.Name] = s.Groups
	}
	require.Equal(t, []int{3, 5, 5}, []int{groups["first"], groups["spread"], groups["second"]})

	job = operators.NewJob("set")
	src = operators.FromSource(job, "src", optest.Items(0, []optest.Timed[hit]{}), hitSerde)
	operators.ToSink(operators.Forward(src, "moved", operators.Groups(2)), "out", operators.FuncSink(func(*operators.Batch[hit]) error { return nil }))
	_, err = job.Plan()
	require.ErrorContains(t, err, `stream "moved": Forward keeps the key groups of its input`)
}
