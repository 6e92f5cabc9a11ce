package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/nexmark/sweep"
	"tailrace.dev/tailrace/nexmark/sweep/specs"
)

// What the specs of Trilink's clocks measure has the right answers. A run takes one check of ten.
func TestClockSpecs(t *testing.T) {
	run := newRun().Flags()
	env := &sweep.Env{Shared: func(name string) bool { return run.Lookup(name) != nil }}
	n := 0
	for _, name := range []string{"trilink-figure6", "trilink-figure14", "trilink-table10", "trilink-latency", "trilink-overhead", "trilink-grain", "quick-trilink-clocks"} {
		text, ok := specs.Text(name)
		require.True(t, ok)
		spec, err := sweep.Parse(name, text, known())
		require.NoError(t, err)
		spec.CheckEvents = 4000
		for _, step := range sweep.NewPlan(spec, false).Steps() {
			c := step.Case
			if c.Check == 0 {
				continue
			}
			n++
			if !proctest.Drawn(t.Name()+": "+step.Key(), n, 10) {
				continue
			}
			t.Run(name+"/"+step.Key(), func(t *testing.T) {
				t.Parallel()
				right, err := sweep.Oracle(&c)
				require.NoError(t, err)
				require.NotEmpty(t, right)
				out := filepath.Join(t.TempDir(), "out")
				code, stderr := nexmark(t, env.Command(&c, out)[1:]...)
				require.Zero(t, code, stderr)
				answer, err := sweep.Judge(&c, out, right)
				require.NoError(t, err)
				require.True(t, answer.Right, answer.Difference)
			})
		}
	}
	require.Greater(t, n, 40)
}
