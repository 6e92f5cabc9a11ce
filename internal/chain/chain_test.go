package chain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
)

// With all rules every state within the bounds is good.
func TestAllRulesHold(t *testing.T) {
	r := Check(All, Bounds{Groups: 2, Window: 2, Conns: 2}, 3_000_000)
	require.True(t, r.Whole, "%d states were not enough", r.States)
	require.Empty(t, r.Story, strings.Join(r.Story, "\n"))
	require.Greater(t, r.States, 500)
	t.Logf("%d states", r.States)
}

// Without any one of them a bad state is reachable; the shortest stories are golden.
func TestEachRuleIsNeeded(t *testing.T) {
	var text strings.Builder
	for _, c := range []struct {
		name string
		drop func(r *Rules)
	}{
		{"without one home", func(r *Rules) { r.OneHome = false }},
		{"without the chain", func(r *Rules) { r.Chain = false }},
		{"without resolving first", func(r *Rules) { r.Resolve = false }},
		{"with a value that returns", func(r *Rules) { r.Fresh = false }},
	} {
		rules := All
		c.drop(&rules)
		r := Check(rules, Bounds{Groups: 2, Window: 2, Conns: 2}, 3_000_000)
		require.NotEmpty(t, r.Story, "%s: %d states and none is bad", c.name, r.States)
		fmt.Fprintf(&text, "%s, the order of what has effect is %v:\n", c.name, r.Effect)
		for i, step := range r.Story {
			fmt.Fprintf(&text, "  %d. %s\n", i+1, step)
		}
	}
	script.Golden(t, "testdata/stories.txt", text.String())
}
