package exec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
)

// Streams that meet in a stage have slots if all of them go by a hash into the job's key groups, and their
// readers can give key groups away, and forward none.
func TestWithSlots(t *testing.T) {
	hashed := exec.StreamSpec{Hashed: true}
	plan := func(streams []exec.StreamSpec, stages ...exec.StageSpec) *exec.Plan {
		return &exec.Plan{Streams: streams, Stages: stages}
	}
	reads := func(in ...int) exec.StageSpec { return exec.StageSpec{Inputs: in} }
	for name, c := range map[string]struct {
		plan *exec.Plan
		want []int
	}{
		"one":             {plan([]exec.StreamSpec{hashed}, reads(0)), []int{4}},
		"unhashed":        {plan([]exec.StreamSpec{{}, hashed}, reads(0), reads(1)), []int{0, 4}},
		"met by unhashed": {plan([]exec.StreamSpec{hashed, hashed, {}}, reads(0, 1), reads(1, 2)), []int{0, 0, 0}},
		"fixed groups":    {plan([]exec.StreamSpec{{Hashed: true, Groups: 1}, hashed}, reads(0), reads(1)), []int{0, 4}},
		"a sink":          {plan([]exec.StreamSpec{hashed, hashed}, exec.StageSpec{Inputs: []int{0}, Sink: true}, reads(1)), []int{0, 4}},
		"forwarded":       {plan([]exec.StreamSpec{hashed, {Forwards: true}}, exec.StageSpec{Inputs: []int{0}, Outputs: []int{1}}, reads(1)), []int{0, 0}},
		"of a sink":       {plan([]exec.StreamSpec{hashed, hashed}, exec.StageSpec{Inputs: []int{0}, Outputs: []int{1}, Sink: true}, reads(1)), []int{0, 0}},
		"has some":        {plan([]exec.StreamSpec{{Slots: 4}, {}}, reads(0), reads(1)), []int{4, 0}},
	} {
		with := c.plan.WithSlots(4)
		var slots []int
		for _, s := range with.Streams {
			slots = append(slots, s.Slots)
		}
		require.Equal(t, c.want, slots, name)
		require.Same(t, c.plan, c.plan.WithSlots(0), name)
		if name != "has some" {
			for _, s := range c.plan.Streams {
				require.Zero(t, s.Slots, "%s: the plan is another one", name)
			}
		}
	}
	require.Equal(t, []int{0, 0, 0, 3}, plan(make([]exec.StreamSpec, 4), reads(1, 2), reads(0, 1), reads(3)).Domains())
}
